"""Verdicts and reports: computed from records, never more than they support."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import fake_single_node as single_node
from fake_records import records, resources
from lockstep.analysis.published import read_claims
from lockstep.analysis.statistics import ratio_with_interval
from lockstep.analysis.verdicts import NOT_MEASURABLE, NOT_REPRODUCED, NOT_YET, REPRODUCED, VERDICTS, Verdict, judge
from lockstep.experiments.catalogue import catalogue
from lockstep.experiments.report import (
    HEADLINES,
    REPORT_COLUMNS,
    fill_tables,
    markdown_table,
    no_records,
    published_measured,
    published_text,
    read_all,
    render_markdown,
    report_all,
    tally,
)
from lockstep.records import COLUMNS
from lockstep.records.places import repository_root

NOTEBOOK = "02_threads_vs_processes"
WORDS = {REPRODUCED, NOT_REPRODUCED, NOT_MEASURABLE, NOT_YET}


ARITHMETIC = ("flops_equation", "flops_total")
"""Verdicts on sums that the paper prints with all their terms: nothing has to be measured for them."""


def claim(verdict: str, **changes: Any) -> dict[str, Any]:
    return {"id": "x", "use_case": "both", "value": float("nan"), "unit": "", "notebook": NOTEBOOK, "note": "why",
            "statement": "Time on 5 nodes over that on 6 nodes", "verdict": verdict, **changes}  # fmt: skip


def faster(strategy: str, factor: float) -> pd.DataFrame:
    """Records in which a strategy's images/s and peak PSS are multiplied."""
    frame = records()
    hit = frame["strategy"] == strategy
    frame.loc[hit, ["images_per_second", "peak_pss_bytes"]] *= factor
    return frame


@pytest.fixture(scope="module")
def judged() -> pd.DataFrame:
    claims = read_claims()
    return published_measured(records(), claims[claims["notebook"] == NOTEBOOK], resources()).set_index("claim")


def test_every_row_has_a_known_word_and_a_reason(judged: pd.DataFrame) -> None:
    assert set(judged["verdict"]) <= WORDS and judged["reason"].ne("").all()
    assert [*judged.reset_index().columns] == list(REPORT_COLUMNS)


def test_without_records_nothing_is_reproduced_or_refuted() -> None:
    claims = read_claims()
    table = published_measured(no_records(), claims[~claims["verdict"].isin(ARITHMETIC)])
    assert set(table["verdict"]) <= {NOT_YET, NOT_MEASURABLE}
    assert table["measured"].eq("").all() and table["reason"].ne("").all()


def test_too_few_rounds_decide_nothing() -> None:
    claims = read_claims()
    table = published_measured(records(rounds=4), claims[claims["notebook"] == NOTEBOOK], resources(rounds=4))
    assert set(table["verdict"]) <= {NOT_YET, NOT_MEASURABLE}
    assert table["reason"].str.contains(r"only 4 paired round").any()


def test_a_speedup_above_the_cores_is_not_measurable_and_names_them(judged: pd.DataFrame) -> None:
    row = judged.loc["s2m-table1-cpu-multi-simplebig"]
    assert (row["verdict"], row["published"]) == (NOT_MEASURABLE, "15.57 times")
    assert ("2 cores" in row["reason"] and row["measured"].startswith("1.9")) or row["measured"].startswith("1.8")


@pytest.mark.parametrize(("value", "word"), [(1.9, REPRODUCED), (1.8, REPRODUCED), (1.2, NOT_REPRODUCED)])
def test_a_speedup_within_the_cores_is_judged(value: float, word: str) -> None:
    found = judge(claim("processes_speedup", use_case="SimpleBig", value=value), records())
    assert found.verdict == word and "10%" in found.reason


def test_gpu_rows_take_the_skipped_rows_reason(judged: pd.DataFrame) -> None:
    for name in ("s2m-table1-gpu-single-simplebig", "s2m-gpu-threads", "s2m-gpu-worst-simplebig"):
        assert (judged.loc[name, "verdict"], judged.loc[name, "reason"]) == (NOT_MEASURABLE, "no CUDA device")


def test_a_failed_row_is_not_measured_yet_with_its_reason() -> None:
    found = judge(claim("processes_beat_threads"), records(failed="threads"))
    assert found.verdict == NOT_YET and "ValueError" in found.reason


@pytest.mark.parametrize(("factor", "word"), [(1.0, REPRODUCED), (1.65 / 1.9, NOT_REPRODUCED), (0.6, NOT_REPRODUCED)])
def test_processes_beat_threads_needs_an_interval_above_1(factor: float, word: str) -> None:
    assert judge(claim("processes_beat_threads"), faster("processes", factor)).verdict == word


def test_an_effect_the_other_way_round_says_so() -> None:
    assert "other way round" in judge(claim("processes_beat_threads"), faster("processes", 0.6)).reason


def test_one_use_case_against_the_claim_settles_it() -> None:
    frame = records()
    hit = (frame["strategy"] == "processes") & (frame["use_case"] == "SimpleBig")
    frame.loc[hit, "images_per_second"] *= 0.5
    found = judge(claim("processes_beat_threads"), frame)
    assert found.verdict == NOT_REPRODUCED and "ComplexSmall: " in found.measured and "SimpleBig: " in found.reason


def test_the_gil_alone_can_be_refuted_but_not_shown() -> None:
    assert judge(claim("gil_hinders_threads"), records()).verdict == NOT_MEASURABLE
    assert judge(claim("gil_hinders_threads"), faster("processes", 0.6)).verdict == NOT_REPRODUCED


def test_best_local_strategy_is_compared_with_threads_inside_operators_too() -> None:
    assert judge(claim("processes_best_local"), records()).verdict == REPRODUCED
    assert judge(claim("processes_best_local"), faster("intra_op", 1.3)).verdict == NOT_REPRODUCED


def test_unequal_cores_are_no_comparison() -> None:
    frame = records()
    frame.loc[frame["strategy"] == "intra_op", "cores_per_worker"] = 4
    found = judge(claim("processes_best_local"), frame)
    assert found.verdict == NOT_YET and "2 cores" in found.reason


def test_cpu_modes_speed_up_needs_both_modes() -> None:
    assert judge(claim("cpu_modes_speed_up"), records()).verdict == REPRODUCED
    assert judge(claim("cpu_modes_speed_up"), faster("threads", 0.5)).verdict == NOT_REPRODUCED


def test_larger_gain_and_dependence_on_the_use_case() -> None:
    frame = records()
    hit = (frame["use_case"] == "SimpleBig") & frame["strategy"].isin(["threads", "processes"])
    frame.loc[hit, "images_per_second"] *= 0.8
    assert judge(claim("larger_gain_simple_big"), records()).verdict == REPRODUCED
    assert judge(claim("larger_gain_simple_big"), frame).verdict == NOT_REPRODUCED
    assert judge(claim("gain_depends_on_use_case"), frame).verdict == REPRODUCED


@pytest.mark.parametrize(("name", "strategy", "factor"), [
    ("processes_less_memory", "processes", 1.3), ("replicas_need_memory", "processes", 0.5),
])  # fmt: skip
def test_memory_verdicts_turn_with_the_memory(name: str, strategy: str, factor: float) -> None:
    assert judge(claim(name), records()).verdict == REPRODUCED
    assert judge(claim(name), faster(strategy, factor)).verdict == NOT_REPRODUCED


def test_complex_small_memory_turns_with_the_memory() -> None:
    frame = records()
    frame.loc[frame["use_case"] == "ComplexSmall", "peak_pss_bytes"] *= 0.3
    assert judge(claim("complex_small_more_memory"), records()).verdict == REPRODUCED
    assert judge(claim("complex_small_more_memory"), frame).verdict == NOT_REPRODUCED


@pytest.mark.parametrize(("name", "column", "change"), [
    ("processes_smoother_memory", "pss_bytes", lambda trace: 5e9),
    ("processes_smoother_threads", "threads", lambda trace: 12),
    ("cpu_fully_used", "cpu_percent", lambda trace: trace["cpu_percent"] * 0.8),
])  # fmt: skip
def test_trace_verdicts_turn_with_the_traces(name: str, column: str, change: Any) -> None:
    traces = resources()
    assert judge(claim(name), records(), traces).verdict == REPRODUCED
    flat = traces.assign(**{column: change(traces)})
    assert judge(claim(name), records(), flat).verdict in {NOT_REPRODUCED, NOT_YET}
    assert judge(claim(name), records(), None).verdict == NOT_YET


def test_threads_per_image_and_equal_means() -> None:
    traces = resources()
    assert judge(claim("thread_per_image"), records(), traces).verdict == NOT_REPRODUCED
    assert judge(claim("thread_per_image"), records(), traces.assign(threads=80)).verdict == REPRODUCED
    assert judge(claim("same_mean_threads"), records(), traces.assign(threads=80)).verdict == REPRODUCED
    doubled = traces["threads"].where(traces["strategy"] == "threads", 2 * traces["threads"])
    assert judge(claim("same_mean_threads"), records(), traces.assign(threads=doubled)).verdict == NOT_REPRODUCED


def test_a_gpu_speedup_is_over_one_gpu_when_there_are_gpus() -> None:
    frame = records()
    cuda = frame["device"] == "cuda"
    frame.loc[cuda, ["status", "reason"]] = ["ok", ""]
    frame.loc[cuda, "images_per_second"] = 100.0
    frame.loc[cuda & (frame["strategy"] == "processes"), "images_per_second"] = 157.0
    found = judge(claim("gpu_speedup", use_case="ComplexSmall", value=1.57), frame)
    assert found.verdict == REPRODUCED and found.measured.startswith("1.57")
    assert judge(claim("needs_gpu"), frame).verdict == NOT_YET


def test_open_claims_say_what_is_open() -> None:
    assert NOTEBOOK in judge(claim("pending"), records()).reason
    for name in ("omission", "contradiction", "survey"):
        found = judge(claim(name), records())
        assert found.verdict == NOT_MEASURABLE and "why" in found.reason


def test_every_verdict_function_answers_empty_and_full_records() -> None:
    for name in VERDICTS:
        for frame, traces in ((no_records(), None), (records(), resources())):
            found = judge(claim(name, value=1.5, unit="times"), frame, traces)
            assert found.verdict in WORDS and found.reason


def test_published_text_has_the_unit() -> None:
    assert [published_text(15.57, "times"), published_text(35, "KiB"), published_text(float("nan"), "")] == [
        "15.57 times", "35 KiB", ""
    ]  # fmt: skip


def test_markdown_cells_cannot_break_the_table() -> None:
    text = markdown_table(pd.DataFrame({"reason": ["a|b\nc"]}))
    assert text == "| Why |\n| --- |\n| a\\|b c |\n"


def test_the_tally_counts_every_row(judged: pd.DataFrame) -> None:
    text = render_markdown(judged.reset_index(), "02")
    tally = next(line for line in text.splitlines() if line.startswith("Verdicts:"))
    assert sum(int(word) for word in tally.replace(",", "").split() if word.isdigit()) == len(judged)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with made-up records of notebook 02."""
    folder = tmp_path_factory.mktemp("run") / NOTEBOOK
    folder.mkdir()
    records()[list(COLUMNS)].to_csv(folder / "records.csv", index=False)
    resources().to_csv(folder / "resources.csv", index=False)
    return folder.parent


def ratio_of_processes(frame: pd.DataFrame) -> str:
    shared = {"experiment": "table1", "use_case": "SimpleBig", "device": "cpu", "variant": "a"}
    over = [shared | {"strategy": name} for name in ("processes", "sequential")]
    return str(ratio_with_interval(frame, *over, "images_per_second"))


def test_report_all_holds_every_claim_and_names_the_data(stored: Path) -> None:
    text = report_all(stored)
    for statement in read_claims()["statement"]:
        assert statement in text
    assert "Data: real and synthetic. 6 rounds" in text and "No records are stored." in text
    assert text.count("| Place | Claim |") == read_claims()["notebook"].nunique()
    assert "## Not tied to a notebook" in text


def test_a_readme_block_is_made_anew_and_an_unknown_one_refused(tmp_path: Path) -> None:
    text = "before\n<!-- table:headlines -->\nold\n<!-- /table -->\nafter\n"
    filled = fill_tables(text, tmp_path)
    assert "old" not in filled and filled.startswith("before\n<!-- table:headlines -->\n| Asked | Published |")
    assert filled.endswith("<!-- /table -->\nafter\n") and fill_tables(filled, tmp_path) == filled
    with pytest.raises(ValueError, match="'nothing' does not exist; there are: headlines"):
        fill_tables(text.replace("headlines", "nothing"), tmp_path)


def test_the_headlines_show_what_was_asked_published_and_measured(stored: Path) -> None:
    text = fill_tables("<!-- table:headlines -->\n<!-- /table -->", stored)
    (question,) = [notebook.question for notebook in catalogue() if notebook.name == NOTEBOOK]
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    (first,) = [line for line in rows if question in line]
    assert f"[{question}](notebooks/{NOTEBOOK}.ipynb)" in first, "the link is that of a reader in the root folder"
    (speedup,) = [line for line in rows if "**15.57 times**" in line]
    ratio = ratio_of_processes(records())
    assert f"| {ratio} at batch 64 (base: 32) on 2 cores |" in speedup and "not measurable here: 2 cores" in speedup
    (ours,) = [line for line in rows if "our own aim: processes over the sequential baseline ≥ 1.85" in line]
    assert f"| {ratio} |" in ours and ours.endswith("| reached |")
    everything = [found.verdict for part in read_all(stored) for _, found in part.judged]
    assert f"All {len(read_claims())} claims of the ledger: {tally(everything)}." in text
    assert f"{NOTEBOOK[:2]}: Data: real and synthetic. 6 rounds" in text


def test_every_built_notebook_with_claims_has_a_headline() -> None:
    claims = read_claims().set_index("id")
    assert set(HEADLINES) <= set(claims.index)
    built = {notebook.name for notebook in catalogue() if notebook.built}
    assert built & set(claims["notebook"]) <= {claims.loc[name, "notebook"] for name in HEADLINES}


@pytest.mark.parametrize(("published", "word"), [(15.57, NOT_MEASURABLE), (1.9, NOT_YET)])
def test_one_round_gives_no_number_to_draw(published: float, word: str) -> None:
    """Its interval would have no width: exact, it seems."""
    asked = claim("processes_speedup", use_case="SimpleBig", value=published, unit="times")
    found = judge(asked, records(rounds=1))
    assert (found.verdict, found.measured, found.numbers) == (word, "", ())
    assert judge(asked, records(rounds=5)).numbers


def test_a_tally_counts_in_the_order_of_the_words() -> None:
    assert tally([NOT_YET, REPRODUCED, NOT_YET]) == "1 reproduced, 2 not measured yet"


def test_numbers_are_kept_beside_the_words() -> None:
    """For figures: a text can't be drawn."""
    found = judge(claim("processes_speedup", use_case="SimpleBig", value=1.9, unit="times"), records())
    ((of, ratio),) = found.numbers
    assert of == "" and found.measured.startswith(str(ratio)) and str(ratio) == ratio_of_processes(records())
    found = judge(claim("cpu_fully_used", value=100, unit="percent"), records(), resources())
    assert [of for of, _ in found.numbers] == [
        f"{use_case}, {strategy}" for use_case in ("ComplexSmall", "SimpleBig") for strategy in ("threads", "processes")
    ]
    assert judge(claim("processes_beat_threads"), records()).numbers == (), "no published figure to stand beside"


def test_the_readmes_tables_are_those_of_the_reference_records() -> None:
    """Nobody types a number into the README: `lockstep report --fill README.md` writes them."""
    root = repository_root()
    text = (root / "README.md").read_text(encoding="utf-8")
    assert "<!-- table:headlines -->" in text
    assert fill_tables(text, root / "results" / "reference") == text


def test_the_gpu_is_compared_with_the_best_setting_of_the_cpu() -> None:
    """Twice the fastest rung, not twice the baseline."""
    frame = single_node.records()
    assert judge(claim("gpu_beats_cpu"), frame) == Verdict(NOT_MEASURABLE, "", "no CUDA device")
    on_gpu = (frame["device"] == "cuda") & (frame["experiment"] == "ladder")
    best = frame[frame["strategy"] == "channels_last"].set_index(["round", "use_case"])["images_per_second"].dropna()
    frame.loc[on_gpu, "status"] = "ok"
    for index, row in frame[on_gpu].iterrows():
        frame.loc[index, "images_per_second"] = 2 * best[row["round"], row["use_case"]]
    found = judge(claim("gpu_beats_cpu"), frame)
    assert found.verdict == REPRODUCED and "SimpleBig: 2 [2, 2] times the best CPU setting" in found.measured
    frame.loc[on_gpu, "images_per_second"] /= 4
    assert judge(claim("gpu_beats_cpu"), frame).verdict == NOT_REPRODUCED
    assert judge(claim("gpu_beats_cpu"), frame.iloc[:0]).verdict == NOT_YET
