from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from karat.data.tables import Gold, Queries, Run
from karat.evaluation.api import evaluate
from karat.pages.formatting import ASCII_BLOCKS, BLOCKS, histogram
from karat.pages.terminal import print_line, show_page, show_table
from karat.reports.document import Report

from .conftest import BASE, GATES, HEAD, decided, world


def shown(report, width: int = 100, *, colour: bool = False) -> str:
    console = Console(
        file=io.StringIO(),
        width=width,
        markup=False,
        highlight=False,
        emoji=False,
        force_terminal=colour,
        color_system="standard" if colour else None,
    )
    show_page(report.page(), console)
    return console.file.getvalue()


def tables(text: str) -> str:
    """The lines of the tables: from the line above each rule to the next empty line."""
    lines = text.splitlines()
    kept = []
    for at, line in enumerate(lines):
        if line.startswith("───"):
            end = next(k for k in range(at, len(lines)) if not lines[k].strip())
            kept += lines[at - 1 : end]
    return "\n".join(kept)


def test_the_terminal_shows_ceilings_ties_and_counts(report):
    text = shown(report)
    assert "ceiling" in text
    assert "by tie order" in text
    assert "good: 3 of 4 queries scored" in text
    assert "1 query in the run has no gold" in text


def test_the_last_line_says_which_data_and_code(report):
    of = {"dataset_version": "v2", "as_of_range": ("2025-01-01", "2026-01-01")}
    lines = shown(replace(report, code_version="4be1c0d", **of)).splitlines()
    dates = "as_of range 2025-01-01 to 2026-01-01"
    assert lines[-1] == f"dataset version v2 · {dates} · code version 4be1c0d"
    # Dates alone say nothing that the queries do not.
    dated = replace(report, as_of_range=("2025-01-01", "2026-01-01"))
    assert shown(dated) == shown(report)


_BETTER = r"BETTER  head improves RR by 0\.43 \(95 % interval .*, p < 0\.001, 45 queries\)"


def test_what_is_out_of_reach_comes_first_then_the_verdict(change):
    lines = shown(change).splitlines()
    assert lines[0].startswith("OUT OF REACH  P@5: no ranking can reach 0.50")
    assert lines[1] == "FAIL  2 of 5 gates fail, 1 cannot be judged"
    assert lines[2].startswith("  R@1 in language pt needs ")
    assert lines[3].startswith("  latency.retrieve.p50 cannot be measured")
    assert re.fullmatch(_BETTER, lines[4])
    assert lines[5].startswith("  but RR fell by 0.17 in language pt (")


def test_the_parts_stand_in_the_order_of_what_matters(change):
    text = shown(change)
    order = [
        "FAIL  ",
        "gate  ",
        "gates would block a system exactly at every limit",
        "head against base\n",
        "* RR decides, as the first of the measures",
        "margin 2 % of the baseline's mean",
        "\nmeasure  ",
        "RR by language, head against base",
        "head against base: 1.00 of the first 10 shared",
        "moved most: head against base",
        "45 of 45 queries scored",
        "profile karat ·",
        "95 % intervals, not corrected for their number (gaffke, 2,000 resamples, seed 0)",
    ]
    places = [
        text.index(words) if words != "\nmeasure  " else text.rindex(words) for words in order
    ]
    assert places == sorted(places)


def test_a_confirmed_regression_outranks_gates_that_pass():
    report = decided(*world({"base": HEAD, "head": BASE}), gates=["mean RR > 0.1"])
    lines = shown(report).splitlines()
    assert lines[0].startswith("WORSE  head worsens RR by ")
    assert lines[1] == "PASS  the gate passes"


def test_gates_show_mean_interval_n_and_what_is_needed(change):
    text = shown(change)
    # Clopper and Pearson for 28 of 45: 0.465 to 0.762; 21 of 45 would have a lower end above 0.3.
    assert re.search(r"R@1 >= 0\.3 +pass +0\.6222 \[0\.46\d\d, 0\.76\d\d\] +45 +0\.4667", text)
    assert re.search(r"latency\.retrieve\.p50 <= 60 +unmeasurable +- +0 +-\n", text)
    assert "mean RR > 0.4" in text


def test_the_measure_that_decides_is_starred_and_the_rest_is_not(change):
    table = shown(change)
    assert re.search(
        r"^RR \* +0\.3167 +0\.7481 +\+0\.4315 +\[0\.\d+, 0\.\d+\]", table, re.MULTILINE
    )
    assert table.count(" * ") == 1
    assert re.search(r" 33/0/12 +better", table)


def test_several_systems_are_compared_one_by_one():
    runs, gold, queries = world({"base": BASE, "head": HEAD, "a-rather-long-name": BASE})
    text = shown(decided(runs, gold, queries, gates=GATES))
    assert "BETTER  head against base: head improves RR by" in text
    assert "SAME  a-rather-long-name against base: both runs return the same lists" in text
    assert "a-rather-long-name against base: both return the same lists" in text
    assert re.search(r"a-rather-long-name against base\nmeasure +baseline +system ", text)
    assert re.search(r"head against base\nmeasure +base +head ", text)
    assert "6 of 10 gates fail, 2 cannot be judged" in text


@pytest.mark.parametrize(
    ("gates", "told"),
    [
        (["RR >= 0.9"], "FAIL  the gate fails"),
        (["RR >= 0.2"], "PASS  the gate passes"),
        (["latency.retrieve.p50 <= 9"], "CANNOT TELL  the gate cannot be judged"),
        (["RR >= 0.2", "R@1 >= 0.2"], "PASS  all 2 gates pass"),
        (["RR >= 0.2", "RR >= 0.9"], "FAIL  1 of 2 gates fails"),
        (["RR >= 0.2", "latency.a.p50 <= 9"], "CANNOT TELL  1 of 2 gates cannot be judged"),
    ],
)
def test_the_verdict_on_gates_is_a_plain_sentence(gates, told):
    runs, gold, queries = world({"head": HEAD})
    assert shown(decided(runs, gold, queries, gates=gates, compared=False)).startswith(f"{told}\n")


def test_a_comparison_of_nothing_is_said_and_shows_no_empty_table():
    gold = Gold.from_dict({"q00": {"a": 0}})
    runs, _, queries = world({"base": [1], "head": [2]})
    text = shown(decided(runs, gold, queries, measures=["RR"]))
    assert text.startswith("UNCLEAR  RR has no value that both systems share\n")
    assert "* decides" not in text


def test_small_segments_are_marked_and_kept(change):
    text = shown(change)
    assert re.search(r"^pt +12 small ", text, re.MULTILINE)
    assert re.search(r"^en +33  ", text, re.MULTILINE)


def test_that_intervals_stand_by_themselves_is_said_once(change, report):
    for one in (change, report):
        assert shown(one).count("95 % intervals") == 1


def test_without_intervals_the_report_says_so_and_shows_means_alone():
    settings = {"interval": "none"}
    text = shown(decided(*world({"base": BASE, "head": HEAD}), settings=settings))
    assert "no intervals · p from 10,000 permutations, seed 0" in text
    assert "RR       0.3167  0.7481" in [line.rstrip() for line in text.splitlines()]


def test_resampling_by_conversation_is_said():
    runs, gold, queries = world({"base": BASE, "head": HEAD})
    frame = queries.frame.with_columns(group=queries.frame["query_id"].str.slice(0, 2))
    grouped = Queries.from_frame(frame)
    text = shown(decided(runs, gold, grouped))
    assert "2,000 resamples of groups" in text


@pytest.mark.parametrize("width", [80, 100])
def test_tables_fit_the_width_of_a_terminal(change, width):
    lines = tables(shown(change, width=width)).splitlines()
    assert len(lines) > 30
    assert max(map(len, lines)) <= width


def test_texts_of_queries_are_cut_to_the_width_and_nothing_else_is():
    runs, gold, queries = world({"base": BASE, "head": HEAD})
    frame = queries.frame.with_columns(text=queries.frame["text"] + " long" * 40)
    text = shown(decided(runs, gold, Queries.from_frame(frame)), width=80)
    cut = [line for line in text.splitlines() if "…" in line]
    assert len(cut) == 10
    assert all(len(line) <= 80 and line.startswith("q") for line in cut)


def test_verdicts_are_coloured_only_where_colours_are_shown(change):
    assert "\x1b[1;31mFAIL" in shown(change, colour=True)
    assert "\x1b[" not in shown(change)


def test_names_from_files_are_no_markup_anywhere():
    bad = "\x1b[31m[bold]x\n"
    runs, gold, queries = world({bad: BASE, f"{bad}2": HEAD})
    frame = queries.frame.with_columns(
        text=queries.frame["text"] + bad, language=queries.frame["language"] + bad
    )
    text = shown(decided(runs, gold, Queries.from_frame(frame), gates=["RR >= 0.9"]), width=200)
    assert "\x1b" not in text
    assert "[bold]x�2 against �[31m[bold]x�" in text


def test_a_name_cannot_steer_the_terminal(gold):
    run = Run.from_dict({"q1": {"a": 1.0}}, name="\x1b[31mred\x1b[0m [bold]")
    text = shown(Report.of([evaluate(run, gold, ["RR"])], gold=gold))
    assert "\x1b" not in text
    assert "[bold]" in text


@pytest.mark.parametrize("width", [24, 40])
def test_narrow_terminals_split_tables_and_keep_numbers_whole(report, width):
    text = shown(report, width=width)
    for system in report.results()["systems"]:
        for measure in system["measures"].values():
            assert f"{measure['mean']:.4f} [{measure['ci'][0]:.2f}, " in text
    assert "…" not in text


def test_a_wide_name_is_shown_whole():
    gold = Gold.from_dict({"q": {"x": 1}})
    name = "a-very-long-name-of-a-system-" * 4
    run = Run.from_dict({"q": {"x": 1.0}}, name=name)
    assert name in shown(Report.of([evaluate(run, gold, ["RR"])], gold=gold), width=40)


def test_many_segments_of_many_measures_fit(gold, runs):
    queries = Queries.from_dict(
        {name: {"text": name, "kind": name * 3} for name in ("q1", "q2", "q10", "q4")}
    )
    scores = [evaluate(runs[0], gold, ["RR", *(f"R@{k}" for k in range(1, 20))], queries=queries)]
    report = Report.of(scores, gold=gold, queries=queries, by=["kind"])
    lines = tables(shown(report, width=60)).splitlines()
    assert max(map(len, lines)) <= 60


def test_columns_stand_closer_before_a_table_is_split():
    grid = [["name", "one", "two"], ["a", "1234", "1234"]]

    def printed(width: int) -> list[str]:
        console = Console(file=io.StringIO(), width=width)
        show_table(grid, console)
        return [line.rstrip() for line in console.file.getvalue().splitlines()]

    assert printed(16)[0] == "name   one   two"
    assert printed(15)[0] == "name  one  two"
    assert printed(14)[0] == "name  one  two"
    assert printed(13)[0] == "name   one"


def ranked(*ranks: int | None) -> list[Run | Gold]:
    """A run that has each query's one relevant item at this rank, and the gold."""
    lists = {
        f"q{at}": ["x"] * 0 if rank is None else [*"uvwxyz"[: rank - 1], "a"]
        for at, rank in enumerate(ranks)
    }
    gold = Gold.from_dict({query: ["a"] for query in lists})
    return [Run.from_dict({query: items or ["x"] for query, items in lists.items()}), gold]


# The values 1, 1/2, 1/4, 1/5 and 0 of RR, one query each: tenths 10, 6, 3, 3 and 1.
SPREAD = (1, 2, 4, 5, None)


def test_one_system_alone_shows_how_its_queries_spread():
    run, gold = ranked(*SPREAD)
    lines = shown(Report.of([evaluate(run, gold, ["RR"])], gold=gold)).splitlines()
    assert re.fullmatch(r"measure +run +quartiles +spread *", lines[0])
    assert re.search(r"0\.2000 · 0\.2500 · 0\.5000  ▄ █  ▄   ▄ *$", lines[2])


def test_several_systems_have_no_room_for_spreads(report):
    assert "spread" not in shown(report, width=300)


def test_a_number_of_the_whole_set_has_no_spread():
    run, gold = ranked(*SPREAD)
    text = shown(Report.of([evaluate(run, gold, ["RR", "GMAP"])], gold=gold))
    (line,) = (line for line in text.splitlines() if line.startswith("GMAP"))
    assert not set(line) & set(BLOCKS)


def test_the_spread_is_left_out_before_a_table_is_split():
    run, gold = ranked(*SPREAD)
    report = Report.of([evaluate(run, gold, ["RR"])], gold=gold)
    whole = len(tables(shown(report, width=200)).splitlines()[2].rstrip())
    # One blank less between each of four columns, then without the spread and its blank.
    closest = whole - 3
    for width, spread, split in [
        (whole, True, False),
        (closest, True, False),
        (closest - 1, False, False),
        (closest - 11, False, False),
        (closest - 12, False, True),
    ]:
        text = shown(report, width=width)
        assert ("spread" in text) == spread, width
        assert (text.count("measure") > 1) == split, width


def test_where_unicode_cannot_be_shown_the_spread_is_drawn_in_ascii():
    run, gold = ranked(*SPREAD)
    console = Console(file=io.TextIOWrapper(io.BytesIO(), "ascii", errors="replace"), width=100)
    show_page(Report.of([evaluate(run, gold, ["RR"])], gold=gold).page(), console)
    console.file.flush()
    text = console.file.buffer.getvalue().decode()
    assert f"{ASCII_BLOCKS[3]} {ASCII_BLOCKS[7]}  {ASCII_BLOCKS[3]}   {ASCII_BLOCKS[3]}" in text


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=60))
def test_a_histogram_draws_each_tenth_as_high_as_it_is_full(thousandths):
    """Counted by hand in whole numbers: the last tenth holds the top itself."""
    counts = [0] * 10
    for value in thousandths:
        counts[min(value // 100, 9)] += 1
    drawn = histogram([value / 1000 for value in thousandths], 1.0)
    assert len(drawn) == 10
    heights = [0 if sign == " " else BLOCKS.index(sign) + 1 for sign in drawn]
    for count, height in zip(counts, heights, strict=True):
        assert (height - 1) * max(counts) < 8 * count <= height * max(
            counts
        ) or count == height == 0


@pytest.mark.parametrize(
    ("values", "top", "drawn"),
    [
        ([], 1.0, ""),
        ([float("nan")], 1.0, ""),
        ([0.0, 0.0], None, "█         "),
        ([0.0, float("nan"), 1.0], 1.0, "█        █"),
        ([0.1, 0.2, 0.3, 0.6, 0.7], 1.0, " ███  ██  "),
        ([1.0, 2.0], 10.0, " ██       "),
        ([10.0, 20.0], None, "     █   █"),
        ([-1.0, 1.0], 1.0, "█        █"),
        ([0.0] * 4000 + [1.0], 1.0, "█        ▁"),
    ],
)
def test_histograms_of_few_values(values, top, drawn):
    assert histogram(values, top) == drawn


def test_a_sentence_is_broken_between_words_on_a_terminal_and_whole_elsewhere():
    sentence = "  " + "word " * 20 + "x" * 50

    def said(*, terminal: bool) -> list[str]:
        console = Console(file=io.StringIO(), width=40, force_terminal=terminal, color_system=None)
        print_line(sentence, console)
        return console.file.getvalue().splitlines()

    assert said(terminal=False) == [sentence]
    lines = said(terminal=True)
    assert all(line.startswith("  ") and len(line) <= 40 for line in lines)
    assert "".join(lines).replace(" ", "") == sentence.replace(" ", "")
    assert lines[0] == "  word word word word word word word"


def test_a_column_of_words_is_broken_on_a_terminal_and_whole_elsewhere():
    grid = [["rule", "because"], ["one", "a reason of some length"]]
    for terminal, most in ((True, 16), (False, 29)):
        console = Console(file=io.StringIO(), width=16, force_terminal=terminal, color_system=None)
        show_table(grid, console)
        text = console.file.getvalue()
        assert max(len(line.rstrip()) for line in text.splitlines()) == most
        assert " ".join(text.split()).endswith("length")
