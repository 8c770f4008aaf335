"""What customers say, in the words of the help centre: a question with more words to find it by."""

import re

WORD = re.compile(r"\w+")

ALSO = {
    # English
    "bill": "invoice receipt",
    "cash": "refund money",
    "code": "coupon",
    "delete": "close",
    "fake": "scam",
    "firm": "company",
    "id": "identity",
    "login": "sign in verification",
    "postage": "delivery charge refund",
    "sneakers": "shoes return",
    "texted": "text message",
    "trial": "membership",
    "wired": "bank transfer",
    # Portuguese
    "autenticação": "verificação código",
    "calça": "roupas troca",
    "devolução": "reembolso",
    "dobro": "duplicidade duas vezes",
    "estorno": "reembolso",
    "golpe": "SMS",
    "identificação": "verificação identidade documento",
    "numeração": "tamanho troca",
    "prestação": "parcela",
    "prestações": "parcelas",
    "renovação": "cancelamento",
    # Spanish
    "apelacion": "apelación suspensión",
    "clave": "contraseña",
    "codigo": "código",
    "codigos": "códigos",
    "cupon": "cupón",
    "debito": "débito",
    "devolucion": "devolución reembolso",
    "direccion": "dirección domicilio modificar",
    "extravio": "extraviado extravío",
    "flete": "envío",
    "promo": "coupon código descuento",
    "rapipago": "cupón efectivo vencido",
    "remera": "ropa talle cambio",
    "stock": "agotado talle",
    "trucho": "estafa",
    "verificacion": "verificación identidad",
    "vouchers": "coupon código descuento",
    "zapatillas": "calzado devolución",
}


def expand(text: str) -> str:
    """The text with what its words are called in the help centre."""
    extra = [ALSO[word] for word in WORD.findall(text.lower()) if word in ALSO]
    return " ".join([text, *extra])
