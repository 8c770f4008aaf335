"""Which items dominate: more often above gold than the places there are would give by chance."""

from __future__ import annotations

from failing import failures_of, fillers


def test_what_a_threshold_leaves_out_elsewhere_makes_no_item_dominant():
    """Six hubs in 5 of 30 lists; the other 25 are whole, or only their first item is left."""
    corpus = dict.fromkeys([*fillers(60), *fillers(6, "hub"), "g"], "text")
    crowded = [*fillers(6, "hub"), *fillers(6), "g"]
    gold = {f"q{n}": ["g"] for n in range(30)}

    def kinds(kept):
        records = []
        for n in range(30):
            own = [f"x{(n * 7 + at) % 60}" for at in range(12)]
            records.append({"query_id": f"q{n}", "topk": crowded if n < 5 else own[:kept]})
        found = failures_of(records, gold, corpus=corpus)
        return [found.by_query[f"q{n}"].kind for n in range(5)]

    # 300 places for 67 items: an item stands in 4.5 lists by chance, and the hubs in 5.
    assert kinds(12) == kinds(1) == ["low_rank"] * 5


def test_where_all_lists_are_short_fewer_places_are_there_to_take():
    """One item a list, of 20: the hub tops 6 of 30, four times as many as chance has it."""
    corpus = dict.fromkeys([*fillers(18), "hub", "g"], "text")
    gold = {f"q{n}": ["g"] for n in range(30)}
    records = [{"query_id": f"q{n}", "topk": ["hub" if n < 6 else f"x{n % 18}"]} for n in range(30)]
    assert failures_of(records, gold, corpus=corpus).dominant == (("hub", 6),)
