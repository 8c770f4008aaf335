"""Which classes of failures cannot be told, and which field would tell them."""

from __future__ import annotations

from karat.analysis.failures.case import Case

_LISTS = "the top items of each list, which were not kept"


def unchecked(case: Case) -> dict[str, str]:
    """What would have been needed for each class that could not be told, in part or at all."""
    lacks: dict[str, str | None] = {
        "not_in_index": None if case.staged.gold.corpus is not None else "a corpus: --corpus",
        "routed_away": _of_sources(case),
        "rewritten_away": _of_rewriting(case),
        "freshness_filtered": None if _sieved(case, "as_of") else _of_ages(case),
        "filtered_out": _list_before(case, "filter"),
        "threshold_exclusion": None if _sieved(case, "threshold") else _of_scores(case),
        "embedding_mismatch": _of_similarities(case),
        "rerank_demotion": _list_before(case, "reranker"),
        "false_positive_dominance": None if case.tops is not None else _LISTS,
        "cut_by_k": _list_before(case, "cut"),
    }
    return {name: f"needs {what}" for name, what in lacks.items() if what is not None}


def _sieved(case: Case, stage: str) -> bool:
    """Whether the log has the lists of a sieve, and those before it."""
    return stage in case.way.names[1:]


def _list_before(case: Case, what: str) -> str | None:
    return None if case.way.names else f"the list before the {what} in the log: raw"


def _of_rewriting(case: Case) -> str | None:
    if case.original is not None:
        return None
    return "the list for the original query in the log: stages.original"


def _of_sources(case: Case) -> str | None:
    """What is missing to tell whether a query was sent to the right source."""
    corpus = case.staged.gold.corpus
    known = case.asked("source") is not None or (corpus is not None and "source" in corpus.columns)
    lacks = [] if case.chosen is not None else ["the source of each call in the log"]
    if not known:
        lacks.append("the right source: a column source in --queries or --corpus")
    return ", and ".join(lacks) or None


def _of_ages(case: Case) -> str | None:
    """What is missing to tell whether gold is too new."""
    gold = case.staged.gold
    lacks = [] if gold.as_of else ["an as_of for each query: --queries"]
    if gold.corpus is None or "version" not in gold.corpus.columns:
        lacks.append("a version for each item: --corpus")
    if case.tops is None:
        lacks.append(_LISTS)
    return ", and ".join(lacks) or None


def _of_scores(case: Case) -> str | None:
    """What is missing to tell whether gold was below the system's threshold."""
    if case.lines.score is None:
        return "the threshold's list in the log: stages.threshold, or --line score=S"
    return None if _logged(case, "score") else "a score for every hit in the log"


def _of_similarities(case: Case) -> str | None:
    """What is missing to tell whether gold is embedded badly."""
    cosine = case.staged.final.meta.get("score_kind") == "cosine"
    if _logged(case, "similarity") or (cosine and _logged(case, "score")):
        return None
    return 'a similarity for each hit in the log, or "score_kind": "cosine"'


def _logged(case: Case, fact: str) -> bool:
    """Whether the run says anything of the kind about any judged hit."""
    return bool(case.way.first.facts[fact].count())
