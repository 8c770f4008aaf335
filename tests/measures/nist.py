"""Where NIST's test data lies, how its outputs read, and what karat calls its measures."""

from __future__ import annotations

import re
from pathlib import Path

DATA = Path(__file__).parents[3] / "shared" / "data"
TREC_EVAL = DATA / "trec_eval-test"

_PLAIN = {
    "map": "AP",
    "gm_map": "GMAP",
    "Rprec": "Rprec",
    "bpref": "Bpref",
    "recip_rank": "RR",
    "infAP": "infAP",
    "ndcg": "nDCG",
    "set_P": "SetP",
    "set_recall": "SetR",
    "set_F": "SetF",
    "num_ret": "NumRet",
    "num_rel": "NumRel",
    "num_rel_ret": "NumRelRet",
    # trec_eval 10 weighs ranks with p = 0.9
    "rbp": "RBP(p=0.9)",
    "rbp_resid": "RBPres(p=0.9)",
    "ndcg_1=3,2=9,4=4.5": "nDCG(gain={1: 3, 2: 9, 4: 4.5})",
}
_CUT = {
    "P": "P",
    "recall": "R",
    "ndcg_cut": "nDCG",
    "map_cut": "AP",
    "success": "Hit",
    "unj": "Hole",
    "iprec_at_recall": "IPrec",
}
# What trec_eval also prints and karat does not offer.
NOT_OFFERED = {
    "11pt_avg",
    "G",
    "Rndcg",
    "Rprec_mult",
    "binG",
    "gm_bpref",
    "ndcg_rel",
    "num_nonrel_judged_ret",
    "num_q",
    "relative_P",
    "relstring",
    "runid",
    "set_map",
    "set_relative_P",
    "utility",
}


def karat_name(name: str) -> str | None:
    """karat's spelling of a trec_eval measure; None where there is none."""
    if name in _PLAIN:
        return _PLAIN[name]
    family, _, cut = name.rpartition("_")
    return f"{_CUT[family]}@{float(cut):g}" if family in _CUT else None


def family(name: str) -> str:
    """A trec_eval measure without its cut-off or parameters."""
    return re.sub(r"_[-\d.,]+$", "", name)


def printed(path: Path) -> dict[tuple[str, str], str]:
    """A trec_eval output as {(measure, query): value}."""
    rows = [line.split() for line in path.read_text().splitlines()]
    return {(name, query): value for name, query, value in rows}
