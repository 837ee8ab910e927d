"""Notebook 00: every notebook and every claim in its place, with records, without, and before they are built."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from fake_records import records, resources
from lockstep.analysis.figures.messages import LONGEST
from lockstep.analysis.figures.style import PUBLISHED
from lockstep.analysis.judging import not_enough
from lockstep.analysis.published import AUDIT, CLAIM, CONTRADICTION, UNSAID, read_claims, read_ledger
from lockstep.analysis.statistics import MIN_ROUNDS
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import ANSWERS, GRADES, MEASURED, NEEDS_HARDWARE, NOT_YET, TOLERANCE, UNDECIDED, Verdict
from lockstep.experiments import catalogue as catalogue_module
from lockstep.experiments import report
from lockstep.experiments.catalogue import Notebook, catalogue
from lockstep.experiments.e00_overview import EXPERIMENT
from lockstep.experiments.e00_overview import findings as findings_module
from lockstep.experiments.e00_overview import tables as overview
from lockstep.experiments.e00_overview.drawings import ANSWER_COLOURS, answer_bars, published_beside_measured
from lockstep.experiments.e00_overview.tables import NUMBERS, Overview, how_to_read, read_overview
from lockstep.experiments.opening import Run, open_experiment
from lockstep.experiments.registry import every
from lockstep.records import COLUMNS, SCHEMA_VERSION

NOTEBOOK = "02_threads_vs_processes"
UNBUILT = "06_spark_distribution"
RUN: dict[str, Any] = {
    "schema_version": SCHEMA_VERSION,
    "sessions": [{
        "day": "2026-11-22",
        "git": {"commit": "0123456789abcdef", "dirty": True},
        "machine": {"cpu": "A CPU", "cores": 2, "cores_total": 64, "memory_bytes": 24 * 2**30, "gpu": [],
                    "os": "Linux", "bfloat16": "amx", "kernel": "6.1"},
        "versions": {"python": "3.11.7", "torch": "2.13.0", "numpy": "2.4.6", "glibc": "2.36"},
    }],
}  # fmt: skip


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made-up records of notebook 02, and its executed notebook."""
    folder = tmp_path_factory.mktemp("run") / NOTEBOOK
    folder.mkdir()
    records()[list(COLUMNS)].to_csv(folder / "records.csv", index=False)
    resources().to_csv(folder / "resources.csv", index=False)
    (folder / "run.json").write_text(json.dumps(RUN))
    (folder / "executed.ipynb").write_text("{}")
    return folder.parent


@pytest.fixture(scope="module")
def seen(run_folder: Path) -> Overview:
    return read_overview(run_folder)


@pytest.fixture(scope="module")
def nothing(tmp_path_factory: pytest.TempPathFactory) -> Overview:
    return read_overview(tmp_path_factory.mktemp("nothing"))


def row(text: str, holds: str) -> str:
    (found,) = [line for line in text.splitlines() if holds in line]
    return found


def texts(figure: Figure) -> list[str]:
    return [found.get_text() for found in figure.findobj(Text) if found.get_text()]


def test_the_catalogue_holds_what_is_built_and_what_the_ledger_names(root: Path) -> None:
    found = {notebook.name: notebook for notebook in catalogue()}
    committed = {path.stem for path in (root / "notebooks").glob("[0-9]*.ipynb")}
    assert {name for name, notebook in found.items() if notebook.built} == committed
    assert set(read_ledger()["notebook"]) - {""} <= set(found) and list(found) == sorted(found)
    assert found[NOTEBOOK].question == "Threads or processes: which trains faster on one machine?"


def test_a_notebook_that_only_the_ledger_knows_is_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository in which notebook 06 has not been built."""
    others = [found for found in every() if found.name != UNBUILT]
    monkeypatch.setattr(catalogue_module, "every", lambda: others)
    (found,) = [notebook for notebook in catalogue() if not notebook.built]
    assert (found.name, found.number, found.question) == (UNBUILT, "06", "")
    assert found.subject == "spark distribution"


def test_notebooks_say_what_is_stored_of_them(seen: Overview, nothing: Overview) -> None:
    text = seen.notebooks()
    assert f" measurements in {records()['round'].nunique()} rounds" in row(text, f"]({NOTEBOOK}.ipynb)")
    assert "measures nothing" in row(text, "](00_overview.ipynb)")
    assert "not measured yet" in row(nothing.notebooks(), f"]({NOTEBOOK}.ipynb)")
    claims = read_claims()
    assert f"*Single-to-Multi* {(claims['paper'] == 'single-to-multi').sum()}, " in text
    counted = [int(line.split("|")[3].strip() or 0) for line in text.splitlines() if re.match(r"\| \d\d \|", line)]
    assert sum(counted) == (claims["notebook"] != "").sum()


def test_a_notebook_to_come_is_listed_with_its_claims(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = [Notebook(UNBUILT) if notebook.name == UNBUILT else notebook for notebook in catalogue()]
    claims = read_claims()
    claims.loc[claims["notebook"] == UNBUILT, "verdict"] = "pending"  # as the ledger must say of such a notebook
    monkeypatch.setattr(report, "catalogue", lambda: known)
    monkeypatch.setattr(report, "checked_claims", lambda: claims)
    view = read_overview(run_folder)
    listed = row(view.notebooks(), "| 06 |")
    assert listed.endswith("| not built yet |") and "](" not in listed and "spark distribution" in listed
    (section,) = [part for part in view.claims().split("### ") if part.startswith("06 · ")]
    assert "Not built yet." in section and section.splitlines()[6].endswith("| 06 |")


def test_the_machine_is_that_of_run_json(seen: Overview, nothing: Overview) -> None:
    found = row(seen.machines(), "A CPU")
    versions = "python 3.11.7, torch 2.13.0, numpy 2.4.6"
    assert found.strip("| ").split(" | ") == [
        f"[02]({NOTEBOOK}.ipynb)", "2026-11-22", "A CPU", "2 of 64", "24 GiB", "amx", "none", "Linux 6.1", versions,
        "01234567 and uncommitted changes",
    ]  # fmt: skip
    assert nothing.machines() == "No records are stored in this run folder."


def test_counts_add_up_to_the_ledger(seen: Overview, nothing: Overview) -> None:
    for view in (seen, nothing):
        counts = view.counts()
        assert list(counts.columns) == [*ANSWERS, "claims"]
        assert (counts[list(ANSWERS)].sum(axis=1) == counts["claims"]).all()
        assert counts.loc["all", "claims"] == len(read_claims()) == counts.drop(index="all")["claims"].sum()
    assert seen.counts().loc["02", ANSWERS[0]] > 0


def test_every_claim_stands_in_the_section_of_its_notebook(seen: Overview) -> None:
    sections = seen.claims().split("### ")[1:]
    assert len(sections) == read_claims().groupby(["notebook", "paper"]).ngroups
    by_title = {section.splitlines()[0].partition(" · ")[0]: section for section in sections}
    for claim in read_claims().to_dict("records"):
        number = str(claim["notebook"])[:2] or "Not tied to a notebook"
        assert f"| {claim['place']} | {claim['statement']}" in by_title[number], claim["id"]
    own = by_title["02"].splitlines()[4:]
    assert all(line.endswith(f"| [02]({NOTEBOOK}.ipynb) |") for line in own[2:] if line), (
        "each row links to its notebook"
    )
    assert "(ComplexSmall) (ComplexSmall)" not in seen.claims()


@pytest.mark.slow
def test_what_is_not_judged_is_listed_and_not_counted(seen: Overview, opened: Run) -> None:
    ledger = read_ledger()
    for kind, name in ((CONTRADICTION, "contradictions"), (UNSAID, "unsaid"), (AUDIT, "audits")):
        own, text = ledger[ledger["kind"] == kind], opened.text(name).data
        for row in own.to_dict("records"):
            assert f"| {row['place']} | {row['statement']} |" in text, row["id"]
            assert f"| {row['place']} | {row['statement']} |" not in seen.claims(), row["id"]
        assert sum(int(found) for found in re.findall(r"\*, (\d+) rows:", text)) == len(own)
    assert seen.counts().loc["all", "claims"] == len(ledger) - (ledger["kind"] != CLAIM).sum()


def test_notebooks_without_records_have_their_bar(seen: Overview) -> None:
    counts = seen.counts()
    assert 0 < counts.loc["11", NOT_YET] == counts.loc["11", "claims"]
    assert "notebook 11" in texts(answer_bars(counts, "title"))


def test_without_records_nothing_is_measured(nothing: Overview) -> None:
    words = {found.answer for part in nothing.answered for _, found in part.judged if found.grade == MEASURED}
    assert words == {NOT_YET, NEEDS_HARDWARE}, "only the paper, bounds and models can say more"
    assert nothing.numbers().empty and list(nothing.numbers().columns) == list(NUMBERS)
    aims = [line for line in nothing.targets().splitlines() if "| ≥ " in line]
    assert aims and all(line.endswith(f"|  | {NOT_YET} |") for line in aims)


def test_a_target_of_each_notebook_has_its_row(seen: Overview) -> None:
    text = seen.targets()
    with_targets = [found for found in every() if found.targets]
    assert text.count("### ") == len(with_targets) > 0
    for found in with_targets:
        assert f"### [{found.number} · " in text
        for target in found.targets:
            assert f"| {target.name} | {target.aim} {target.threshold:g} |" in text


def test_numbers_are_those_of_the_verdicts(seen: Overview) -> None:
    numbers = seen.numbers().set_index("claim")
    speedup = numbers.loc["s2m-table1-cpu-multi-simplebig"]
    assert (speedup["published"], speedup["unit"], speedup["notebook"]) == (15.57, "times", "02")
    assert speedup["low"] <= speedup["measured"] <= speedup["high"] and speedup["measured"] == pytest.approx(
        1.9, rel=0.05
    )
    assert list(numbers.loc["s2m-cpu-fully-used", "published"]) == [100.0] * 4
    assert numbers["published"].notna().all() and numbers["measured"].notna().all()


def test_links_of_a_run_lead_to_its_executed_notebooks(run_folder: Path) -> None:
    """Its notebook 00 lies in <run>/00_overview/, one folder below the others'."""
    text = read_overview(run_folder, executed=True).claims()
    assert f"| [02](../{NOTEBOOK}/executed.ipynb) |" in text and f"]({NOTEBOOK}.ipynb)" not in text
    assert text.count("executed.ipynb") == text.count(f"../{NOTEBOOK}/executed.ipynb"), "nothing else has been run"


def test_a_relative_folder_is_that_of_the_repository(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(overview, "read_all", lambda folder: [])
    assert read_overview("results/reference").folder == root / "results" / "reference"


def test_the_words_are_explained_with_the_rules_of_the_code() -> None:
    lines = how_to_read().splitlines()
    assert [line.partition("**: ")[0] for line in lines[: len(ANSWERS)]] == [f"- **{word}" for word in ANSWERS]
    assert f"{TOLERANCE:.0%}" in lines[0] and f"fewer than {MIN_ROUNDS} quiet rounds" in lines[2]
    assert [line.partition("*: ")[0] for line in lines[-len(GRADES) :]] == [f"- *{grade}" for grade in GRADES]


def test_the_bars_show_each_count(seen: Overview) -> None:
    counts = seen.counts()
    figure = answer_bars(counts, "title")
    axis = figure.axes[0]
    parts = counts.drop(index="all")[list(ANSWERS)].to_numpy().ravel()
    widths = sorted(bar.get_width() for bar in axis.patches)
    assert widths == sorted(parts), "a part for each count"
    shown = sorted(int(text.get_text()) for text in axis.texts)
    assert shown == sorted(part for part in parts if part), "with its number, unless there is none"
    assert set(ANSWERS) <= set(texts(figure)) and "notebook 02" in texts(figure) and "no notebook" in texts(figure)
    assert len({str(colour) for colour in ANSWER_COLOURS.values()}) == len(ANSWERS)


def test_published_and_measured_have_marks_of_their_own(seen: Overview) -> None:
    numbers = seen.numbers()
    figure = published_beside_measured(numbers, "title")
    marks = [line for axis in figure.axes for line in axis.lines if line.get_marker() in ("D", "o")]
    published = [line for line in marks if line.get_marker() == PUBLISHED["marker"]]
    measured = [line for line in marks if line.get_marker() == "o"]
    assert sorted(float(line.get_xdata()[0]) for line in published) == sorted(
        numbers.groupby("claim")["published"].first()
    )
    assert sorted(float(line.get_xdata()[0]) for line in measured) == sorted(numbers["measured"])
    assert all(line.get_markerfacecolor() == "white" for line in published), "hollow"
    filled = sorted(float(line.get_xdata()[0]) for line in measured if line.get_markerfacecolor() != "white")
    assert filled == sorted(numbers.loc[numbers["evidence"] == MEASURED, "measured"]), "what is bounded looked measured"
    assert "published" in texts(figure) and any("(02): 15.57 published" in text for text in texts(figure))
    assert max(line.get_zorder() for line in published) < min(line.get_zorder() for line in measured), (
        "a diamond once hid the measured point exactly where both agree"
    )
    assert "15.57" not in texts(figure), "a label beside the diamond collided with points"


def test_a_very_large_ratio_has_a_panel_of_its_own(seen: Overview) -> None:
    """Seen: 37 208 squeezed all other ratios into a third of the axis."""
    numbers = seen.numbers()
    ratios = numbers[numbers["unit"] == "times"]
    huge = ratios.head(1).assign(claim="huge", published=37_208.0, measured=39_500.0, low=39_000.0, high=40_000.0)
    few = len(published_beside_measured(numbers, "title").axes)
    axes = published_beside_measured(pd.concat([numbers, huge]), "title").axes
    assert len(axes) == few + 1
    assert sum(axis.get_xlim()[1] > 10_000 for axis in axes) == 1


def test_a_very_wide_interval_does_not_squeeze_percentages(seen: Overview) -> None:
    """Seen: a whisker up to 300 % squeezed all accuracies into one fourth of their axis."""
    row = dict.fromkeys(NUMBERS, "") | {"unit": "percent", "answer": ANSWERS[2], "evidence": MEASURED, "statement": "s"}
    narrow = row | {"claim": "x", "published": 93.0, "measured": 83.0, "low": 82.0, "high": 84.0}
    wide = row | {"claim": "y", "published": 2.2, "measured": 56.0, "low": 10.0, "high": 300.0}
    first, second = published_beside_measured(pd.DataFrame([narrow, wide]), "title").axes
    assert first.get_xlim()[1] < 110 and second.get_xlim()[1] > 300


def test_the_ticks_of_a_logarithm_do_not_overlap(seen: Overview) -> None:
    """Seen: 65536 ran into 1.04858e+06."""
    row = dict.fromkeys(NUMBERS, "") | {"claim": "x", "unit": "KiB", "published": 35.0, "measured": 524_503.0}
    row |= {"low": 524_503.0, "high": 524_503.0, "answer": ANSWERS[1], "evidence": "bound", "statement": "s"}
    figure = published_beside_measured(pd.DataFrame([row]), "title")
    figure.draw_without_rendering()
    axis = figure.axes[0]
    low, high = axis.get_xlim()
    ticks = [tick for tick in axis.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
    boxes = [tick.label1.get_window_extent() for tick in ticks]
    assert len(ticks) > 2 and not any("e+" in tick.label1.get_text() for tick in ticks)
    assert all(one.x1 + 2 < other.x0 for one, other in pairwise(boxes))


def test_a_negative_figure_needs_no_logarithm() -> None:
    one = dict.fromkeys(NUMBERS, "") | {"claim": "x", "unit": "times", "published": 2.0, "measured": -1.0, "low": -1.5}
    figure = published_beside_measured(
        pd.DataFrame([one | {"high": -0.5, "answer": ANSWERS[0], "statement": "s"}]), "title"
    )
    assert figure.axes[0].get_xscale() == "linear" and figure.axes[0].get_xlim()[0] < -1.5
    none = one | {"unit": "%", "measured": 0.0, "low": 0.0, "high": 2.0, "answer": ANSWERS[0], "statement": "s"}
    assert published_beside_measured(pd.DataFrame([none]), "title").axes[0].get_xscale() == "linear", "nor has 0"


def test_without_numbers_a_figure_says_so(nothing: Overview) -> None:
    assert "no claim has both a published and a measured number yet" in texts(
        published_beside_measured(nothing.numbers(), "title")
    )
    assert "the ledger holds no claims" in texts(answer_bars(nothing.counts().iloc[:0], "title"))


@pytest.fixture(scope="module")
def opened(run_folder: Path) -> Run:
    """As notebook 00 opens it in a run: nothing is measured, and links lead to that run's executed notebooks."""
    return open_experiment("00", {"measure": True, "results": str(run_folder)})


@pytest.mark.slow
def test_the_notebook_opens_a_run_folder_without_measuring(opened: Run, run_folder: Path) -> None:
    view = read_overview(run_folder, executed=True)
    assert opened.text("claims").data == view.claims() and "executed.ipynb" in view.claims()
    assert opened.text("machines").data == view.machines() and "A CPU" in view.machines()
    pd.testing.assert_frame_equal(opened.table("verdicts"), view.counts())
    assert len(opened.table("numbers")) == len(view.numbers()) > 0
    assert [path.name for path in run_folder.iterdir()] == [NOTEBOOK], "and leaves no folder of its own"


def test_every_figure_and_text_of_the_notebook_is_there(opened: Run) -> None:
    assert any("15.57 published" in text for text in texts(opened.figure("numbers")))
    assert "notebook 02" in texts(opened.figure("verdicts"))
    assert all(opened.text(name).data for name in EXPERIMENT.texts)
    with pytest.raises(KeyError, match=r"no text 'claim'; there are: .*claims"):
        opened.text("claim")


def test_the_answer_counts_every_claim_once_and_the_finding_by_paper(seen: Overview, opened: Run) -> None:
    said, counts = opened.answer().data, seen.counts().loc["all"]
    assert said.startswith(f"> **{EXPERIMENT.question}**")
    decided = counts[ANSWERS[0]] + counts[ANSWERS[1]]
    told = f"{counts[ANSWERS[0]]} supported and {counts[ANSWERS[1]]} contradicted"
    whole = f"{counts['claims']} claims {decided} are decided and {counts['claims'] - decided} open"
    begins = f"Of {whole}:\n>\n> - {counts[ANSWERS[0]]} supported ("
    assert begins in said and f"\n> - {counts[UNDECIDED]} are undecided" in said
    assert f"\n> - {counts[NEEDS_HARDWARE]} need hardware that is missing here" in said and counts[NEEDS_HARDWARE] > 1
    assert f"\n> - {counts[NOT_YET]} are not measured yet\n>\n" in said and opened.finding("numbers").data in said
    most = opened.finding("verdicts").data
    first = f"{decided} of {counts['claims']} claims are decided, {told} ("
    assert most.startswith(first) and re.search(r" \d\d \(\d+ of \d+\)\.\n\nBy paper:\n\n- of ", most), most
    for paper, name in catalogue_module.PAPERS.items():
        assert f"of {(read_claims()['paper'] == paper).sum()} claims of *{name}*" in most


def test_the_answer_says_on_what_it_rests(seen: Overview) -> None:
    """Seen: "34 are decided" read as measured, and most of what is measured is decided taken alone."""
    stored = Stored(records())
    judged = [
        ("supported", "paper", ""), ("supported", "measured", ""), ("contradicted", "model", ""),
        ("undecided", "measured", not_enough(Verdict("supported", reason="it is"), 87).reason),
        ("undecided", "measured", "it takes more rounds than one by itself (or two)"),
    ]  # fmt: skip
    claim = {"paper": "x", "value": float("nan")}
    pairs = [(claim, Verdict(word, reason=reason, grade=grade)) for word, grade, reason in judged]
    view = replace(seen, answered=[replace(seen.answered[0], judged=pairs)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(findings_module, "overview", lambda _: view)
        text, most = findings_module.answer(stored), findings_module.verdicts(stored)
    assert "2 supported (1 from the paper or its sources, 1 measured) and 1 contradicted (1 modelled); " in text
    assert "; 2 are undecided (1 of them is decided taken alone, not when all are judged together). " in text
    assert "3 of 5 claims are decided, 2 supported and 1 contradicted (1 of these measured); " in most


def test_a_published_number_lies_above_our_interval_within_it_or_below_it(seen: Overview, opened: Run) -> None:
    table = seen.numbers().dropna(subset=["low"])
    said = opened.finding("numbers").data
    above, below, within = (int(found) for found in re.findall(r"in (\d+) ", said))
    assert above + below + within == len(table) > 0 and above == (table["published"] > table["high"]).sum()


def test_the_answers_of_all_notebooks_stand_in_00_with_links(opened: Run, tmp_path: Path) -> None:
    lines = opened.text("answers").data.splitlines()
    assert len(lines) == sum(found.grid is not None for found in every())
    (own,) = [line for line in lines if f"](../{NOTEBOOK}/executed.ipynb)" in line]
    assert "threads inside operators are " in own and own.endswith(".")
    shown = [line.rpartition("** ")[2] for line in lines]
    assert all(text.endswith(".") and len(text) <= 1.1 * LONGEST + 5 for text in shown), "a notebook is read in minutes"
    assert all("Nothing is stored yet" in line for line in lines if line is not own)
    nothing = Stored(opened.stored.records, assumptions={"results": str(tmp_path), "measure": False})
    assert "No published number has a measured one" in EXPERIMENT.findings["numbers"](nothing)
