"""The second look at what the index returns: how much of the question does a text answer?

Words are compared by their stems. A word that few of the candidates have weighs more than one
that most of them have, words that mean the same in a help centre count as one, and a text that
has two words of the question side by side gets a little more.
"""

import math
import re
from collections import Counter
from functools import lru_cache
from itertools import pairwise

# Customers leave accents out, so they do not count.
ACCENTS = str.maketrans("áéíóúüñ", "aeiouun")
WORD = re.compile(r"\b[a-z0-9]+\b")

ENGLISH = """
    a about after again all already also am an and any are as at be because been before but by
    can cannot could did didn do does doesn doing don done for from get gets go got had has hasn
    have how i if in into is isn it its just keep keeps let ll me mine must my no not now of off
    on one only or our ourselves out own please re shall she should so some something still than
    that the their them then there these they this those to too until up us ve was wasn way we
    were what whats when where whether which who whose why will with without won would yet you
    your
"""
SPANISH = """
    a ahi al algo ante antes asi aun aunque cada como con cual cuales cuando cuanta cuanto
    cuantos de del desde despues donde dos el ella ellos en entre era es esa ese eso esta estaba
    estan estar este esto estoy fue fueron ha hace hacen hago han hasta hay la las le les lo los
    mas me mi mis mucho muy ni no nos nunca o otra otro para pero por porque puede pueden puedo
    que quien quiero se ser si sin sobre solo son soy su sus tambien tan tanto te tenes tengo
    tiene todavia todo tu tus un una uno unos ustedes vos y ya yo
"""
STOP_WORDS = frozenset((ENGLISH + SPANISH).split())

# Words for the same thing. The first of each line stands for the others.
SAME = (
    # English
    "refund refunds refunded reimburse reimbursed money cash",
    "coupon coupons voucher vouchers promo promotional promociones",
    "delivery deliver shipping ship ships postage post",
    "identity id passport license",
    "message text texted",
    "sign login log signing",
    "invoice bill receipt",
    "company firm business",
    "exchange swap exchanged",
    "transfer wire wired ach",
    "twice duplicate same",
    "scam fake phishing",
    "membership trial",
    "close delete closed",
    "combine stacked",
    "shoes sneakers",
    "marriage married",
    "name surname",
    "fee fees bucks",
    # Spanish
    "reembolso reembolsos devolucion devuelven devuelvan reintegro plata guita",
    "envio envios flete mandan",
    "codigo codigos descuento",
    "tienda negocio local",
    "seguimiento tracking",
    "domicilio direccion",
    "modificar cambiar mude",
    "doble duplicado",
    "cupon rapipago boleta",
    "acreditacion acreditan acredita impactar",
    "factura comprobante",
    "contrasena clave",
    "estafa trucho falso",
    "celular telefono",
    "mensaje sms",
    "identidad dni documento",
    "verificacion validar",
    "cuotas partes financiar",
    "talle remera chica grande",
    "agotado stock",
    "rechazo rechaza rechazan rechazada rebotan toma",
    "calzado zapatillas",
    "comision quedan retiene",
)
GLOSSARY = {word: line.split()[0] for line in SAME for word in line.split()}

# The longest ending comes first; what is left must still be a word of three letters.
ENDINGS = (
    *("aciones", "amiento", "imiento", "acion", "iendo", "ments", "ando", "ment", "ing"),
    *("ies", "ed", "es", "ar", "er", "ir", "as", "os", "s", "a", "e", "o"),
)


def score(query: str, texts: list[str]) -> list[float]:
    """A number for each text, the higher the better it fits the query."""
    wanted = list(dict.fromkeys(stems(query)))
    found = [stems(text) for text in texts]
    counts = [Counter(words) for words in found]
    weights = {word: rarity(word, counts) for word in wanted}
    return [
        coverage(weights, own) + 0.3 * neighbours(wanted, words, weights)
        for words, own in zip(found, counts, strict=True)
    ]


@lru_cache(maxsize=10_000)
def stems(text: str) -> tuple[str, ...]:
    """The words of a text that carry meaning, without endings."""
    words = WORD.findall(text.lower().translate(ACCENTS))
    return tuple(stem(GLOSSARY.get(word, word)) for word in words if word not in STOP_WORDS)


def stem(word: str) -> str:
    """A word without its ending, if it has a common one."""
    for ending in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def rarity(word: str, counts: list[Counter]) -> float:
    """How much a word tells about a text, from how many of the candidates have it."""
    having = sum(word in own for own in counts)
    return math.log(1 + (len(counts) - having + 0.5) / (having + 0.5))


def coverage(weights: dict[str, float], own: Counter) -> float:
    """The weight of the words that a text has; more than one mention adds less and less."""
    length = sum(own.values()) / 45
    return sum(
        weight * own[word] / (own[word] + 0.4 + 0.6 * length)
        for word, weight in weights.items()
        if own[word]
    )


def neighbours(wanted: list[str], words: tuple[str, ...], weights: dict[str, float]) -> float:
    """The weight of pairs of the query's words that stand side by side in a text."""
    pairs = set(pairwise(words))
    return sum(
        min(weights[one], weights[other])
        for one, other in pairwise(wanted)
        if (one, other) in pairs
    )
