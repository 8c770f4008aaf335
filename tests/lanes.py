"""Which tests are slow: make test leaves them out, make test-slow runs them.

A slow test repeats with many cases what a faster one tries once (brute force, large files, killed
processes, a second server), or runs a whole page of documentation. Entries are folders, files or
tests, by the start of their ids.
"""

from __future__ import annotations

SLOW = (
    "tests/evaluation/test_verdict_stability.py",
    "tests/evaluation/test_comparison.py::test_a_large_family_has_permutations",
    "tests/analysis/test_sweep_headroom.py::test_a_better_order_never_takes",
    "tests/evaluation/test_interval_promises.py",
    "tests/analysis/test_pareto.py::test_the_front_is_what_a_search_over_all_pairs",
    "tests/analysis/test_waterfall.py::test_every_part_of_every_query_agrees",
    "tests/browser/",
    "tests/cli/test_closed_streams.py",
    "tests/cli/test_compare.py::test_the_same_inputs_give_the_same_bytes",
    "tests/cli/test_damaged_files.py",
    "tests/cli/test_demo.py",
    "tests/cli/test_docs.py",
    "tests/cli/test_interrupted_runs.py",
    "tests/cli/test_many_runs.py",
    "tests/cli/test_memory_limits.py",
    "tests/cli/test_real_terminals.py",
    "tests/cli/test_search.py::test_after_kill_9",
    "tests/engines/",
    "tests/faults/",
    "tests/formats/test_blocks.py::test_a_run_beyond_the_bound",
    "tests/fuzz/test_bombs.py",
    "tests/judging/test_judge_model.py",
    "tests/judging/test_pool.py::test_the_order_does_not_depend",
    "tests/measures/test_against_peers.py",
    "tests/measures/test_agreement_doc.py",
    "tests/measures/test_difference_ranges.py::test_no_common_labelling_leads_out_of_a_range",
    "tests/recipes/",
    "tests/retrievers/test_connect_a_store.py",
    "tests/retrievers/test_models.py::test_a_network_that_does_not_answer",
    "tests/retrievers/test_http_searches.py",
    "tests/retrievers/test_http_start.py",
    "tests/retrievers/test_corpus_index.py::test_processes_at_once",
    "tests/retrievers/test_scifact.py",
    "tests/retrievers/test_typesense.py",
    "tests/store/test_judgment_writers.py",
    "tests/store/test_processes.py",
    "tests/test_packaging.py::test_a_wheel",
    "tests/test_packaging.py::test_building_twice",
    "tests/test_packaging.py::test_the_",
    "tests/test_packaging.py::test_who_reads_the_sources",
    "tests/test_pytest_plugin.py::test_workers_of_xdist",
    "tests/web/test_connections.py",
    "tests/web/test_load.py",
    "tests/web/test_runs_api.py",
    "tests/web/test_serve.py",
)

# Exceptions: make test passes once through each of these places.
FAST = (
    "tests/browser/test_home.py",
    "tests/browser/test_workbench.py",
    "tests/browser/test_report_file.py::test_the_demo_s_report_has_every_section",
    "tests/browser/test_report_file.py::test_charts_are_drawn",
    "tests/engines/test_inputs.py::test_a_run_of_any_format_gives_the_local_report[run.trec]",
    "tests/faults/test_results.py",
    "tests/recipes/test_rag_data.py",
    "tests/retrievers/test_http_start.py::test_a_service_is_started_asked_and_stopped",
    "tests/retrievers/test_http_start.py::test_what_cannot_be_meant_is_refused",
    "tests/web/test_runs_api.py::test_an_evaluation_is_watched_to_its_end",
    "tests/web/test_serve.py::test_it_says_where_it_is_answers_and_ends",
)


def is_slow(test_id: str) -> bool:
    return test_id.startswith(SLOW) and not test_id.startswith(FAST)


def is_wholly_slow(path: str) -> bool:
    """Return whether a file holds slow tests only, so that make test need not import it."""
    return is_slow(path) and not any(entry.startswith(path) for entry in FAST)
