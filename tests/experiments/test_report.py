"""Reports: every claim beside its verdict, computed from records, never more than they support."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fake_records import records, resources
from lockstep.analysis.confidence import Estimate
from lockstep.analysis.judging import judge
from lockstep.analysis.published import CLAIM, read_claims, read_ledger
from lockstep.analysis.statistics import ratio_with_interval
from lockstep.analysis.stored import Stored, no_records
from lockstep.analysis.tables import summary_table
from lockstep.analysis.verdicts import (
    ANSWERS,
    BOUND,
    COMMON,
    MEASURED,
    NEEDS_HARDWARE,
    NOT_YET,
    SUPPORTED,
    UNDECIDED,
    Verdict,
    VerdictFunction,
)
from lockstep.experiments import machines, report
from lockstep.experiments.answering import DECIDED_ALONE
from lockstep.experiments.catalogue import PAPERS, Notebook, catalogue
from lockstep.experiments.readme import fill_tables
from lockstep.experiments.registry import every, experiment
from lockstep.experiments.report import (
    LISTS,
    REPORT_COLUMNS,
    claims_table,
    markdown_table,
    published_text,
    read_all,
    render_markdown,
    report_all,
    report_json,
    sources,
    tally,
    time_to_decide,
)
from lockstep.records import COLUMNS, CONTENDED, SCHEMA_VERSION
from lockstep.records.places import repository_root
from sessions import MACHINE, SESSION

NOTEBOOK = "02_threads_vs_processes"


ARITHMETIC = ("flops_equation", "flops_total")
"""Verdicts on sums that the paper prints with all their terms: nothing has to be measured for them."""


def claim(verdict: str, **changes: Any) -> dict[str, Any]:
    return {"id": "x", "use_case": "both", "value": float("nan"), "unit": "", "notebook": NOTEBOOK, "note": "why",
            "statement": "Time on 5 nodes over that on 6 nodes", "verdict": verdict, **changes}  # fmt: skip


def table_of(claims: pd.DataFrame, stored: Stored, rules: Mapping[str, VerdictFunction]) -> pd.DataFrame:
    return claims_table([(row, judge(row, stored, rules)) for row in claims.to_dict("records")])


@pytest.fixture(scope="module")
def judged() -> pd.DataFrame:
    claims = read_claims()
    found = Stored(records(), {"resources": resources()})
    return table_of(claims[claims["notebook"] == NOTEBOOK], found, experiment(NOTEBOOK).verdicts)


def ratio_of_processes(frame: pd.DataFrame) -> str:
    shared = {"experiment": "table1", "use_case": "SimpleBig", "device": "cpu", "variant": "a"}
    over = [shared | {"strategy": name} for name in ("processes", "sequential")]
    return str(ratio_with_interval(frame, *over, "images_per_second"))


def test_every_row_has_a_known_word_and_a_reason(judged: pd.DataFrame) -> None:
    assert set(judged["answer"]) <= set(ANSWERS) and judged["reason"].ne("").all()
    assert [*judged.columns] == list(REPORT_COLUMNS)


@pytest.mark.slow
def test_without_records_nothing_is_called_measured() -> None:
    """What a paper, arithmetic or a model can say without records has that grade."""
    rules = {found.name: found.verdicts for found in every()}
    for row in read_claims().to_dict("records"):
        found = judge(row, no_records(), rules.get(row["notebook"], {}))
        assert found.reason and (found.answer in (NOT_YET, NEEDS_HARDWARE) or found.grade != MEASURED), row["id"]


def test_open_claims_say_what_is_open() -> None:
    assert NOTEBOOK in judge(claim("pending"), no_records(), {}).reason
    found = judge(claim("survey"), no_records(), {})
    assert found.answer == UNDECIDED and "why" in found.reason


@pytest.mark.slow
def test_every_verdict_function_answers_empty_and_full_records() -> None:
    full = Stored(records(), {"resources": resources()})
    rules = {own.name: own.verdicts for own in every()}
    asked = set(COMMON) - {"documentary", "pending"}  # one needs a quotation, the other a notebook to come
    for row in read_claims().to_dict("records"):
        asked.discard(row["verdict"])
        for stored in (no_records(), full):
            found = judge(row, stored, rules.get(row["notebook"], {}))
            assert found.answer in ANSWERS and found.reason, row["id"]
    assert not asked


def test_published_text_has_the_unit() -> None:
    assert [published_text(15.57, "times"), published_text(35, "KiB"), published_text(float("nan"), "")] == [
        "15.57 times", "35 KiB", ""
    ]  # fmt: skip


def test_markdown_cells_cannot_break_the_table() -> None:
    text = markdown_table(pd.DataFrame({"reason": ["a|b\nc"]}))
    assert text == "| Why |\n| --- |\n| a\\|b c |\n"


def test_the_tally_counts_every_row(judged: pd.DataFrame) -> None:
    text = render_markdown(judged, "02")
    tally = next(line for line in text.splitlines() if line.startswith("Answers:"))
    assert sum(int(word) for word in tally.replace(",", "").split() if word.isdigit()) == len(judged)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with made-up records of notebook 02."""
    folder = tmp_path_factory.mktemp("run") / NOTEBOOK
    folder.mkdir()
    store(folder, records(), "A CPU")
    resources().to_csv(folder / "resources.csv", index=False)
    return folder.parent


def store(folder: Path, frame: pd.DataFrame, *cpus: str) -> None:
    """Records, and a session on each of these."""
    frame[list(COLUMNS)].to_csv(folder / "records.csv", index=False)
    sessions = [SESSION | {"machine": MACHINE | {"cpu": cpu}} for cpu in cpus]
    run = {"schema_version": SCHEMA_VERSION, "parameters": {}, "data": {}, "sessions": sessions}
    (folder / "run.json").write_text(json.dumps(run))


@pytest.mark.slow
def test_report_all_holds_every_claim_and_names_the_data(stored: Path) -> None:
    text = report_all(stored)
    for row in read_ledger().to_dict("records"):
        assert f"| {row['place']} | {row['statement']} |" in text, row["id"]
    assert f" measurements in {records()['round'].nunique()} rounds" in text and "No records are stored." in text
    assert text.count("| Place | Claim |") == read_claims()["notebook"].nunique()
    assert "## Not tied to a notebook" in text


def test_what_is_not_judged_is_listed_apart_and_without_a_verdict(stored: Path) -> None:
    parts = re.split("|".join(f"^## {re.escape(title)}$" for title in LISTS.values()), report_all(stored), flags=re.M)
    ledger = read_ledger()
    for kind, text in zip(LISTS, parts[1:], strict=True):
        own = ledger[ledger["kind"] == kind]
        papers = [name for paper, name in PAPERS.items() if paper in set(own["paper"])]
        assert [line.partition("*, ")[0].strip("*") for line in text.splitlines() if line.startswith("*")] == papers
        rows = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
        assert len(rows) == len(own) + len(papers) and rows.count("| Place | About | Published | Note |") == len(papers)
        for row in own.to_dict("records"):
            (shown,) = [line for line in rows if line.startswith(f"| {row['place']} | {row['statement']} |")]
            assert shown.endswith(f"| {row['note']} |"), row["id"]
        assert not any(word in line for line in rows for word in ANSWERS), "no verdict"


def test_the_report_for_programs_has_the_same_claims(stored: Path) -> None:
    rows = json.loads(report_json(stored))
    assert [row["id"] for row in rows] == [claim["id"] for part in read_all(stored) for claim, _ in part.judged]
    own = {row["id"]: row for row in rows}["s2m-processes-beat-threads"]
    assert (
        own["machine"] == "A CPU, 2 cores, 24 GiB, bfloat16 units: none (2026-11-22)"
        and own["answer"] in ANSWERS
        and own["evidence"] == MEASURED
    )
    assert "NaN" not in report_json(stored) and "Infinity" not in report_json(stored)
    assert all(row["minutes_more"] is None for row in rows if row["answer"] != UNDECIDED), "decided: no minutes"


@pytest.mark.slow
def test_claims_of_the_reference_that_rounds_would_decide_say_how_long_that_takes(root: Path) -> None:
    """Seen: of long-range dependencies the rounds alone, and nothing of what is decided by itself in 05, 07 and 09."""
    told, missing = 0, []
    for part in read_all(root / "results/reference"):
        for claim, found in part.judged:
            alone = DECIDED_ALONE.match(found.reason) and found.grade != BOUND
            if found.answer == UNDECIDED and (alone or math.isfinite(found.rounds_more)):
                told += 1
                says = re.search(r"would decide it: \S+ minutes?$|a day of measuring would not", time_to_decide(found))
                missing += [] if says else [claim["id"]]
    assert told and not missing


def test_days_of_a_machine_are_told_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each session by itself made answers longer with every day of measuring, until 11 was too long to read."""
    one, other = ({"cpu": cpu, "cores": 2, "memory_bytes": 24 << 30, "bfloat16": "none"} for cpu in "AB")
    days = [(one, "2026-11-22"), (one, "2026-11-22"), (other, "2026-11-23"), (one, "2026-11-23"), (one, "2026-11-22")]
    sessions = [{"machine": machine, "day": day} for machine, day in days]
    monkeypatch.setattr(machines, "read_run", lambda folder: {"sessions": sessions})
    assert machines.machines(Path()) == (
        "A, 2 cores, 24 GiB, bfloat16 units: none (sessions 0, 1, 4: 2026-11-22, session 3: 2026-11-23); "
        "B, 2 cores, 24 GiB, bfloat16 units: none (session 2: 2026-11-23)"
    )
    assert machines.machines_in_short(Path()) == "A (none) and B (none), 2 cores, 24 GiB (2026-11-22 to 2026-11-23)"
    monkeypatch.setattr(machines, "read_run", lambda folder: {"sessions": sessions[:1]})
    assert machines.machines_in_short(Path()) == "A (none), 2 cores, 24 GiB (2026-11-22)"


def test_a_gpu_beside_is_named_where_its_claims_are_told(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: the number of an H100 was said to be of the notebook's own machine, which has none."""
    gpu = {"cpu": "B", "cores": 16, "memory_bytes": 24 << 30, "bfloat16": "none", "gpu": ["A GPU"]}
    own, beside = tmp_path / "reference" / NOTEBOOK, tmp_path / "reference-gpu" / NOTEBOOK
    of_folder = {own: gpu | {"cpu": "A", "cores": 2, "gpu": []}, beside: gpu}
    days = {folder: {"sessions": [{"machine": machine, "day": "2026-11-22"}]} for folder, machine in of_folder.items()}
    monkeypatch.setattr(machines, "read_run", days.__getitem__)
    alone = "A, 2 cores, 24 GiB, bfloat16 units: none (2026-11-22)"
    assert machines.machines_of_claims(own) == alone
    beside.mkdir(parents=True)
    (beside / "records.csv").touch()
    told = "claims about GPUs: A GPU beside B, 16 cores, 24 GiB, bfloat16 units: none (2026-11-22)"
    assert machines.machines_of_claims(own) == f"{alone}; {told}"
    of_folder[own]["gpu"] = ["Another GPU"]
    assert machines.machines_of_claims(own) == alone, "claims are looked up in the folder that has a GPU itself"
    monkeypatch.undo()
    monkeypatch.setattr(report, "machines_of_claims", lambda folder: f"machine of {folder.name}")
    assert f"machine of {NOTEBOOK}" in {part.machine for part in read_all(stored)}


@pytest.mark.slow
def test_two_machines_that_disagree_are_told_one_by_one(tmp_path: Path) -> None:
    """On the other machine processes are 30 % slower: a line for each session, and the names of the machines."""
    first = records()
    other = first.assign(session=1, round=first["round"] + first["round"].max() + 1)
    slow = (other["strategy"] == "processes") & (other["experiment"] == "table1")
    other.loc[slow, "images_per_second"] *= 0.7
    (tmp_path / NOTEBOOK).mkdir()
    store(tmp_path / NOTEBOOK, pd.concat([first, other]), "A CPU", "Another CPU")
    text = report_all(tmp_path)
    assert "A CPU, 2 cores, 24 GiB, bfloat16 units: none (session 0: 2026-11-22); Another CPU, " in text
    listed = [line for line in text.splitlines() if line.startswith("- s2m-processes-beat-threads, session ")]
    assert [line.split(", ")[1].split(": ")[0] for line in listed] == ["session 0", "session 1"] * 2, "two use cases"
    assert "session 0: 1.16 [" in listed[0] and "session 1: 0.81" in listed[1]
    found = {row["id"]: row for row in json.loads(report_json(tmp_path))}["s2m-processes-beat-threads"]
    assert len(found["sessions_differ"]) == 4 and found["answer"] == UNDECIDED
    table = summary_table(pd.concat([first, other]))
    own = table[(table["strategy"] == "processes") & (table["variant"] == "a") & (table["device"] == "cpu")]
    assert own["speedup_sessions"].str.contains("session 1: ").any()
    agreed = summary_table(first)
    assert "speedup_sessions" not in agreed, "a column for those that need it"


def test_a_session_says_whose_number_it_gives() -> None:
    """Eight lines of one claim named neither the images nor the size that they were of."""
    apart = ((0, Estimate(1.2, 1.1, 1.3, 9)), (1, Estimate(0.8, 0.7, 0.9, 9)))
    both = replace(Estimate(1, 0.5, 2, 18), apart=apart)
    found = Verdict(UNDECIDED, f"small: {both}; large: {both}", "", (("small", both), ("large", both)))
    lines = report.sessions_list([({"id": "a-claim"}, found)]).splitlines()
    texts = ("0: 1.2 [1.1, 1.3]", "1: 0.8 [0.7, 0.9]")
    said = [f"- a-claim, {of}, session {text}" for of in ("small", "large") for text in texts]
    assert [line for line in lines if line.startswith("-")] == said
    alone = report.sessions_list([({"id": "a-claim"}, replace(found, numbers=()))])
    assert alone.count("- a-claim, session ") == 4, "numbers that are only written down have no name"


def test_claims_alone_are_judged(stored: Path) -> None:
    everything = read_all(stored)
    judged = [claim["id"] for part in everything for claim, _ in part.judged]
    beside = [row["id"] for part in everything for row in part.unjudged]
    ledger = read_ledger()
    assert sorted(judged) == sorted(ledger.loc[ledger["kind"] == CLAIM, "id"])
    assert sorted(beside) == sorted(ledger.loc[ledger["kind"] != CLAIM, "id"])


def test_a_notebook_to_come_has_its_claims_as_not_measured_yet(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a repository in which notebook 11 has not been built."""
    unbuilt = "11_straggler_mitigation"
    claims = read_claims()
    claims.loc[claims["notebook"] == unbuilt, "verdict"] = "pending"
    known = [Notebook(unbuilt) if notebook.name == unbuilt else notebook for notebook in catalogue()]
    monkeypatch.setattr(report, "checked_claims", lambda: claims)
    monkeypatch.setattr(report, "catalogue", lambda: known)
    (to_come,) = [part for part in read_all(stored) if part.notebook.name == unbuilt]
    assert not to_come.notebook.built and to_come.unjudged and len(to_come.judged) > 20
    assert {found.answer for _, found in to_come.judged} == {NOT_YET}


def test_a_readme_block_is_made_anew_and_an_unknown_one_refused(tmp_path: Path) -> None:
    text = "before\n<!-- table:headlines -->\nold\n<!-- /table -->\nafter\n"
    filled = fill_tables(text, tmp_path)
    assert "old" not in filled and filled.startswith("before\n<!-- table:headlines -->\n| Asked | Published |")
    assert filled.endswith("<!-- /table -->\nafter\n") and fill_tables(filled, tmp_path) == filled
    with pytest.raises(ValueError, match="'nothing' does not exist; there are: advice, delays, epochs, findings, fore"):
        fill_tables(text.replace("headlines", "nothing"), tmp_path)


def test_the_headlines_show_what_was_asked_published_and_measured(stored: Path) -> None:
    text = fill_tables("<!-- table:headlines -->\n<!-- /table -->", stored)
    (question,) = [notebook.question for notebook in catalogue() if notebook.name == NOTEBOOK]
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    (first,) = [line for line in rows if question in line]
    assert f"[{question}](../notebooks/{NOTEBOOK}.ipynb)" in first, "the link is that of a reader in docs/"
    (speedup,) = [line for line in rows if "**15.57 times**" in line]
    ratio = ratio_of_processes(records())
    assert f"| {ratio} at batch 16 (base: 16) on 2 cores; " in speedup and "it takes at least 16" in speedup
    (ours,) = [line for line in rows if "our own aim: processes over the sequential baseline ≥ 1.85" in line]
    assert f"| {ratio} |" in ours and ours.endswith("| reached |")
    everything = [found.answer for part in read_all(stored) for _, found in part.judged]
    assert f"All {len(read_claims())} claims of the ledger: {tally(everything)}." in text
    assert f"{NOTEBOOK[:2]}: {sources(records())}" in text


def test_every_built_notebook_with_claims_has_a_headline() -> None:
    claims = read_claims().set_index("id")
    for own in every():
        assert set(own.headlines) <= set(claims.index[claims["notebook"] == own.name]), own.name
        assert own.headlines or own.name not in set(claims["notebook"]), own.name


def test_a_tally_counts_in_the_order_of_the_words() -> None:
    assert tally([NOT_YET, SUPPORTED, NOT_YET]) == "1 supported, 2 not measured yet"
    assert tally([NEEDS_HARDWARE]) == "1 needs hardware" and tally([NEEDS_HARDWARE] * 2) == "2 need hardware"


def test_what_was_measured_is_told_in_a_sentence() -> None:
    """Bug: "in 226 rounds; other programs ran during 336" counted measurements, and was read as rounds."""
    frame = records(2)
    ok, rounds = (frame["status"] == "ok").sum(), frame["round"].nunique()
    skipped = (frame["status"] == "skipped").sum()
    assert sources(frame) == f"Data: real. {ok} measurements in {rounds} rounds, {skipped} skipped."
    noisy = frame.assign(reason=frame["reason"].where(frame.index != frame.index[-1], CONTENDED))
    assert f" {ok} measurements (1 while other programs ran) in {rounds} rounds, {skipped}" in sources(noisy)
    failed = frame.assign(status=frame["status"].where(frame.index != frame.index[-1], "failed"))
    assert f"{ok - 1} measurements in {rounds} rounds, 1 failed, {skipped} skipped." in sources(failed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "tables"),
    [
        ("README.md", ["findings", "advice"]),
        ("docs/claims.md", ["notebooks", "headlines"]),
        ("docs/measuring.md", ["minutes"]),
        ("docs/stragglers.md", ["delays", "forecasters", "policies"]),
        ("docs/train.md", ["epochs"]),
    ],
)
def test_generated_tables_are_those_of_the_reference_records(name: str, tables: list[str]) -> None:
    """Nobody types a number into the README: `lockstep report --fill README.md` writes them."""
    root = repository_root()
    text = (root / name).read_text(encoding="utf-8")
    assert re.findall(r"<!-- table:(\w+) -->", text) == tables
    assert fill_tables(text, root / "results" / "reference") == text


@pytest.mark.slow
def test_figures_and_reports_import_no_framework() -> None:
    """They open at once: torch alone takes seconds to import."""
    code = "import sys; from lockstep.experiments.registry import every; import lockstep.experiments.report; every()"
    code += "; assert not {'torch', 'tensorflow'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
