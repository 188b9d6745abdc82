"""Tests of ``just test``: those that prove the promises of the README, in a few minutes.

Each promise has a list of folders, files or single tests, which get the mark ``promise``; CI and ``just test-all`` run
all other tests, too. The marked tests take about 400 CPU seconds, so that two cores need the four minutes that ``just
test`` may take: ``just test -m promise --costs=FILE`` writes what each takes.
"""

from __future__ import annotations

PROMISES: dict[str, tuple[str, ...]] = {
    "Correct numbers": (
        "tests/golden",
        "tests/metrics/test_metrics.py",
        "tests/metrics/test_metrics_against_packages.py",
        "tests/metrics/test_chinese.py",
        "tests/benchmarks/test_any_family.py",
        "tests/benchmarks/test_babilong.py",
        "tests/benchmarks/test_data_files.py",
        "tests/benchmarks/test_graphwalks.py",
        "tests/benchmarks/test_helmet.py",
        "tests/benchmarks/test_infinitebench.py",
        "tests/benchmarks/test_infinitebench_answers.py",
        "tests/benchmarks/test_judging.py",
        "tests/benchmarks/test_leval.py",
        "tests/benchmarks/test_leval_prompts.py",
        "tests/benchmarks/test_longbench.py",
        "tests/benchmarks/test_longbench_pro.py",
        "tests/benchmarks/test_longbench_v2.py",
        "tests/benchmarks/test_lveval.py",
        "tests/benchmarks/test_mrcr.py",
        "tests/benchmarks/test_needle.py",
        "tests/benchmarks/test_parquet.py",
        "tests/benchmarks/test_ruler_counts.py",
        "tests/benchmarks/test_ruler_essays.py",
        "tests/benchmarks/test_ruler_scores.py",
        "tests/benchmarks/test_ruler_words.py",
        "tests/benchmarks/test_select.py",
        "tests/benchmarks/test_task_texts.py",
        "tests/test_prompts.py",
        "tests/test_reasoning.py",
        "tests/running/test_asking.py",
        "tests/running/test_coverage.py",
        "tests/report/test_boards.py::test_longbench_is_what_its_tasks_average_to",
        "tests/report/test_boards.py::test_published_means_are_those_of_lv_evals_readme",
        "tests/report/test_boards.py::test_published_models_average_as_their_readme_has_it",
        "tests/report/test_boards.py::test_v2_is_what_the_official_script_printed",
    ),
    "Visible limits": (
        "tests/report/test_guards.py",
        "tests/report/test_truncation_effect.py",
        "tests/results/test_views.py::test_modes",
    ),
    "Uncertainty": (
        "tests/statistics/test_intervals.py",
        "tests/statistics/test_invariants.py",
        "tests/statistics/test_paired_differences.py",
        "tests/statistics/test_tails.py",
        "tests/report/test_comparing.py::test_verdicts",
    ),
    "Judges and people": (
        "tests/exchange/test_dataset.py",
        "tests/exchange/test_leval_cleaned.py",
        "tests/exchange/test_leval_pages.py",
        "tests/exchange/test_pairs.py",
        "tests/opinions/test_rating_journal.py::test_killed_while_writing_nothing_saved_is_lost_or_doubled",
        "tests/opinions/test_rating_journal.py::test_ratings_of_an_answer_that_has_changed_are_kept_and_count_no_more",
        "tests/opinions/test_rating_sets.py",
        "tests/opinions/test_rubrics.py",
        "tests/statistics/test_agreement.py",
        "tests/web/test_rating_pages.py",
    ),
    "No data loss": (
        "tests/anyorder/test_orders.py::test_a_killed_run_that_goes_on_with_other_tasks_has_all_its_numbers",
        "tests/bundle/test_resume.py",
        "tests/cli/test_interruption.py::test_a_full_disk_stops_the_run_cleanly",
        "tests/cli/test_kills.py::test_a_killed_run_continues",
        "tests/results/test_merging.py::test_shards_are_one_run_in_whatever_order_they_come",
        "tests/results/test_merging.py::test_merging_again_changes_nothing",
        "tests/results/test_merging.py::test_a_killed_run_is_read_with_what_its_log_holds",
        "tests/results/test_schema.py",
        "tests/results/test_store.py",
    ),
    "No downloads behind the gap": (
        "tests/bundle/test_create.py",
        "tests/bundle/test_delta.py",
        "tests/bundle/test_recipe.py",
        "tests/bundle/test_signature.py",
        "tests/bundle/test_unpack.py",
        "tests/bundle/test_verify.py",
        "tests/running/test_offline.py",
    ),
    "Two commands": (
        "tests/test_demo.py",
        "tests/test_docs.py::test_the_two_commands_are_short_and_the_first",
        "tests/test_docs.py::test_every_command_line_is_right",
        "tests/test_docs.py::test_what_is_generated_is_current",
        "tests/test_promises.py",
    ),
    "Shared prefixes change no answer": (
        "tests/backends/test_sequence_memory.py",
        "tests/models/test_demo_model.py",
        "tests/running/test_batching.py",
    ),
    "Nothing hostile gets in": (
        "tests/attacks/test_archives.py",
        "tests/attacks/test_cluster.py::test_an_option_stays_on_its_line",
        "tests/attacks/test_deltas.py::test_a_delta_takes_nothing_from_outside_the_base",
        "tests/attacks/test_export.py::test_no_name_leads_out",
        "tests/attacks/test_import.py::test_a_pipe_in_the_folder_is_not_waited_for",
        "tests/attacks/test_judge_import.py::test_contents_that_cannot_be_taken",
        "tests/attacks/test_merge.py::test_a_hostile_part_stops_the_merge",
        "tests/attacks/test_model_cards.py",
        "tests/attacks/test_model_files.py::test_code_and_pickles_beside_a_configuration_are_not_run",
        "tests/attacks/test_official_scripts.py::test_deep_python_is_read_or_refused",
        "tests/attacks/test_outside_files.py::test_a_small_file_without_end_fills_no_memory",
        "tests/attacks/test_pages.py::test_an_origin_that_is_none",
        "tests/attacks/test_pasted.py::test_a_file_s_name_writes_no_command",
        "tests/attacks/test_planted_links.py::test_a_link_planted_before_the_opening_is_not_followed",
        "tests/attacks/test_planted_ratings.py::test_a_journal_s_lines_are_taken_at_nobody_s_word",
        "tests/attacks/test_processes.py::test_programs_are_not_looked_for_in_the_working_folder",
        "tests/attacks/test_races.py::test_what_is_written_is_what_was_hashed",
        "tests/attacks/test_reports.py",
        "tests/attacks/test_results_files.py::test_a_view_that_reads_a_file_tells_nothing",
        "tests/attacks/test_results_files.py::test_what_lbx_never_makes_is_refused",
        "tests/attacks/test_servers.py::test_an_answer_has_no_end_or_is_none",
        "tests/attacks/test_signatures.py",
        "tests/attacks/test_sql.py::test_no_other_file_is_read",
        "tests/attacks/test_stored_values.py::test_brackets_and_digits_in_texts_are_texts",
        "tests/attacks/test_tags.py",
        "tests/attacks/test_templates.py::test_memory_ends",
        "tests/attacks/test_terminal.py::test_names_are_shown_spelled_out",
        "tests/attacks/test_unpacked.py::test_a_run_does_not_begin_on_what_was_changed",
        "tests/attacks/test_values.py::test_what_got_through_once",
        "tests/attacks/test_zstd.py",
    ),
    "The rooms keep apart": (
        "tests/test_imports.py",
        "tests/test_one_way.py",
        "tests/test_families.py",
    ),
}


def proves(test: str) -> bool:
    """Whether one of the lists contains the test of this id."""
    places = (place for each in PROMISES.values() for place in each)
    return any(f"{test}/".startswith((f"{place}/", f"{place}::", f"{place}[")) for place in places)


def in_file(path: str) -> bool:
    """Whether one of the lists contains a test of this file."""
    return proves(path) or any(place.startswith(f"{path}::") for each in PROMISES.values() for place in each)
