"""Running a grid: whole rounds, minutes that decide as much as they can, and runs that go on where they were."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

from lockstep.engine.job import Job, JobError
from lockstep.measure import grid
from lockstep.measure.comparisons import pairs_of
from lockstep.measure.planning import TRACES, Comparison
from lockstep.records import CONTENDED, RecordError, read_records, read_run, read_traced_table
from made_up_measuring import JOBS, Recorder, run
from sessions import MACHINE

# --- whole rounds ---


def test_whole_rounds_hold_every_cell_once(recorder: Recorder, photos: Path) -> None:
    folder = run(photos, rounds=2, traced=lambda job: job.variant == "a", seeds=[1, 2])
    assert folder == photos.parent / "out" / "02"
    names = [("sequential", "a"), ("threads", "a"), ("sequential", "b")]
    stored = [(number, *name) for number in range(2) for name in names]
    assert recorder.measured == stored
    frame = read_records(folder)
    assert list(zip(frame["round"], frame["strategy"], frame["variant"], strict=True)) == stored
    assert set(frame["data_source"]) == {"real"} and set(frame["images"]) == {12} and set(frame["session"]) == {0}
    assert read_traced_table(folder, "resources") is None, "some steps are no trace, which lasts a minute"
    described = read_run(folder)
    assert described["parameters"] == {"seeds": [1, 2]} and described["data"]["SimpleBig"]["source"] == "real"
    (session,) = described["sessions"]
    assert len(session["workers"]) == 1, "sequential and one thread are the same team"
    assert list(session["environment_profiles"]) == ["tuned"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rounds": -1}, "rounds=-1 is not possible; give a whole number of at least 1"),
        ({"rounds": True}, "rounds=True is not possible"),
        ({"rounds": 1.5}, "rounds=1.5 is not possible"),
        ({"minutes": -1}, "minutes=-1 is not possible; give a number above 0"),
        ({"minutes": float("nan")}, "minutes=nan is not possible"),
        ({"minutes": float("inf")}, "minutes=inf is not possible"),
        ({}, "minutes=0 measures nothing; give a number above 0"),
    ],
)
def test_impossible_budgets(recorder: Recorder, photos: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(JobError) as caught:
        run(photos, **given)
    assert str(caught.value).startswith(message)
    assert not (photos.parent / "out").exists()


def test_killed_whole_rounds_go_on_where_they_were(recorder: Recorder, photos: Path) -> None:
    recorder.stop_at = 5  # in the middle of the second round
    with pytest.raises(KeyboardInterrupt):
        run(photos, rounds=2)
    folder = photos.parent / "out" / "02"
    assert set(read_records(folder)["round"]) == {0}
    before = (folder / "records.csv").read_text()
    recorder.measured.clear()
    recorder.stop_at = 10**9
    run(photos, rounds=2)
    assert [number for number, *_ in recorder.measured] == [1, 1, 1], "the whole second round, and nothing else"
    assert (folder / "records.csv").read_text().startswith(before)


def test_cells_of_a_team_that_holds_gigabytes_follow_one_another(recorder: Recorder, photos: Path) -> None:
    names = ["sequential", "sparknet", "processes", "sparknet_files", "spark_allreduce", "ddp", "sparknet_tau"]
    jobs = [Job.of(name, workers=1 if name == "sequential" else 2) for name in names]
    with warnings.catch_warnings(action="ignore"):  # on one core
        run(photos, rounds=1, jobs=jobs)
    order = [name for _, name, _ in recorder.measured]
    places = [order.index(name) for name in names if name.startswith("sparknet")]
    assert max(places) - min(places) == 2


# --- minutes ---


def test_a_round_is_a_pair_back_to_back_and_every_step_is_kept(recorder: Recorder, photos: Path) -> None:
    folder = run(photos, jobs=JOBS[:2], minutes=0.2)  # 12 s: one round of four visits of 2 s
    assert [name for _, name, _ in recorder.measured] == ["threads", "sequential", "sequential", "threads"]
    frame = read_records(folder)
    assert frame["strategy"].tolist() == ["threads", "sequential"], "a row for each cell: the mean of its visits"
    assert frame["measuring_seconds"].tolist() == [4.0, 4.0]
    steps = read_traced_table(folder, "steps")
    assert steps is not None and steps["visit"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert steps["row"].tolist() == [0, 0, 1, 1, 1, 1, 0, 0] and steps["seconds"].tolist() == [0.09, 0.11] * 4


def test_a_run_ends_in_time_and_a_second_one_goes_on(recorder: Recorder, photos: Path) -> None:
    folder = run(photos, minutes=1)
    first = read_records(folder)
    assert recorder.clock.now <= 60 and first["round"].nunique() == 7, "rounds of 8 s: an eighth would take too long"
    run(photos, minutes=0.5)
    both = read_records(folder)
    assert both["round"].nunique() == 10 and both.iloc[: len(first)].equals(first)
    assert set(both["session"]) == {0}


def test_what_is_settled_gets_no_more_time(recorder: Recorder, photos: Path) -> None:
    folder = run(photos, minutes=60)
    frame = read_records(folder)
    assert recorder.clock.now < 600, "far less than an hour: everything is settled"
    assert frame.groupby("strategy")["round"].nunique()["threads"] >= 5
    before = len(recorder.measured)
    run(photos, minutes=60)
    assert len(recorder.measured) == before, "nothing is left to measure"


def test_a_killed_round_is_lost_and_nothing_else(recorder: Recorder, photos: Path) -> None:
    """In the second half of A B B A."""
    recorder.stop_at = 4 + 3
    with pytest.raises(KeyboardInterrupt):
        run(photos, minutes=1)
    folder = photos.parent / "out" / "02"
    before = (folder / "records.csv").read_text()
    assert set(read_records(folder)["round"]) == {0}
    recorder.stop_at = 10**9
    run(photos, minutes=0.5)  # 30 s: three more rounds of 8 s
    assert (folder / "records.csv").read_text().startswith(before)
    assert sorted(set(read_records(folder)["round"])) == [0, 1, 2, 3]


def test_disturbed_rounds_are_stored_and_do_not_count(recorder: Recorder, photos: Path) -> None:
    recorder.disturbed = {"threads"}
    folder = run(photos, jobs=JOBS[:2], minutes=5)
    frame = read_records(folder)
    assert frame["round"].nunique() == 8, "then it is given up: there is no use in going on now"
    assert frame[frame["strategy"] == "threads"]["reason"].str.contains(CONTENDED).all()


def test_a_cell_that_fails_twice_is_left_out(recorder: Recorder, photos: Path) -> None:
    recorder.failing = {"threads"}
    frame = read_records(run(photos, minutes=5))
    assert (frame["status"] == "failed").sum() == 2
    assert (frame["variant"] == "b").sum() >= 5, "the others are measured all the same"


def test_what_cannot_run_here_is_a_row_that_says_why_once(recorder: Recorder, photos: Path) -> None:
    recorder.failing = {"ddp"}  # measure_job is what says why; a cell that needs a GPU never gets that far
    jobs = [*JOBS[:2], Job.of("sequential", device="cuda")]
    frame = read_records(run(photos, jobs=jobs, minutes=0.5))
    assert (frame["device"] == "cuda").sum() == 1
    run(photos, jobs=jobs, minutes=0.5)
    assert (read_records(photos.parent / "out" / "02")["device"] == "cuda").sum() == 1


def test_minutes_that_hold_no_round_say_how_many_that_takes(recorder: Recorder, photos: Path) -> None:
    recorder.visit_seconds = 30.0
    run(photos, jobs=JOBS[:2], minutes=2.5)
    before = len(recorder.measured)
    with pytest.raises(JobError, match=r"minutes=0.5 is too short: give at least 2, which one round takes"):
        run(photos, jobs=JOBS[:2], minutes=0.5)
    assert len(recorder.measured) == before


def on_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    other = {"git": {"commit": "abc", "dirty": False}, "machine": MACHINE | {"cores": 64}, "versions": {}}
    monkeypatch.setattr(grid, "capture", lambda repository: dict(other))


def test_a_cell_takes_as_long_as_on_another_machine_until_it_is_measured_here(
    recorder: Recorder, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: a cell that takes a second was expected to take six minutes, in proportion to the images of another one."""
    recorder.visit_seconds = 30.0
    alone = {"jobs": JOBS[:1], "comparisons": lambda jobs: [Comparison((0,))]}
    run(photos, minutes=1, **alone)
    on_another_machine(monkeypatch)
    with pytest.raises(JobError, match=r"minutes=0.3 is too short: give at least 0.5, which one round takes"):
        run(photos, minutes=0.3, **alone)


def test_another_machine_is_another_session(recorder: Recorder, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine changes between two runs: the speed of a cell alone is measured anew."""
    alone = {"jobs": JOBS[:1], "comparisons": lambda jobs: [Comparison((0,))]}
    run(photos, minutes=1, **alone)
    on_another_machine(monkeypatch)
    folder = run(photos, minutes=1, **alone)
    frame = read_records(folder)
    assert frame.groupby("session")["round"].nunique().tolist() == [9, 9], "each is settled by its own rounds"
    assert [session["machine"]["cores"] for session in read_run(folder)["sessions"]] == [2, 64]


def test_a_ratio_counts_on_whichever_machine(recorder: Recorder, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of three machines began every ratio at its first round, though the answers count the rounds of all: after
    145 rounds of notebook 02 most of its comparisons had fewer than five on any of them."""
    run(photos, jobs=JOBS[:2], minutes=0.5)
    on_another_machine(monkeypatch)
    frame = read_records(run(photos, jobs=JOBS[:2], minutes=10))
    assert frame.groupby("session")["round"].nunique().tolist() == [3, 6], "nine in all, as on one machine"


@pytest.mark.parametrize(
    ("part", "value", "again"),
    [
        ("git", {"commit": "def", "dirty": False}, False),
        ("day", "1999-12-31", False),
        ("versions", {"torch": "3"}, True),
    ],
)
def test_another_commit_or_day_goes_on_where_the_last_one_was(
    part: str, value: Any, again: bool, recorder: Recorder, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each commit measured every comparison anew, though the answers count the rounds of all of them."""
    folder = run(photos, jobs=JOBS[:2], minutes=10)
    stored = json.loads((folder / "run.json").read_text())
    stored["sessions"][0][part] = value
    (folder / "run.json").write_text(json.dumps(stored))
    (folder / "table_checks.csv").unlink()  # in which the checksum of run.json stands
    before = len(recorder.measured)
    run(photos, jobs=JOBS[:2], minutes=10)
    assert (len(recorder.measured) > before) == again and len(read_run(folder)["sessions"]) == 2


def test_traces_get_a_quarter_of_the_time(recorder: Recorder, photos: Path) -> None:
    folder = run(photos, minutes=30, traced=lambda job: job.variant == "a")
    table = read_traced_table(folder, "resources")
    assert table is not None
    assert table.groupby("strategy")["round"].nunique().to_dict() == {"sequential": TRACES, "threads": TRACES}
    steps = read_traced_table(folder, "steps")
    assert steps is not None and not set(steps["round"]) & set(table["round"]), "a trace is no measurement of time"
    before = len(recorder.measured)
    run(photos, minutes=30, traced=lambda job: job.variant == "a")
    assert len(recorder.measured) == before


def test_cells_that_learn_are_trained_with_seed_after_seed(recorder: Recorder, photos: Path) -> None:
    learning = Job.of("sequential", experiment="learning", use_case="SimpleBig", epochs=1, network="default")
    folder = run(photos, jobs=[learning], minutes=10)
    frame = read_records(folder)
    assert frame["seed"].tolist() == list(range(20)), "and then no more"
    assert frame["round"].tolist() == list(range(20))


# --- refusals ---


def test_other_parameters_do_not_resume(recorder: Recorder, photos: Path) -> None:
    run(photos, rounds=1, seeds=[1])
    before = len(recorder.measured)
    with pytest.raises(RecordError, match="holds a run with another parameters"):
        run(photos, rounds=1, seeds=[2])
    assert len(recorder.measured) == before


def test_a_use_case_that_does_not_exist(recorder: Recorder, photos: Path) -> None:
    with pytest.raises(ValueError, match="use_case='SimpleBgi' does not exist; there are: ComplexSmall, SimpleBig"):
        run(photos, rounds=1, jobs=[Job(use_case="SimpleBgi")])
    assert not (photos.parent / "out").exists()


def test_a_launcher_that_does_not_exist(recorder: Recorder, photos: Path) -> None:
    with pytest.raises(ValueError, match="launcher='trheads' does not exist; there are: threads, processes"):
        run(photos, rounds=1, jobs=[Job(launcher="trheads")])
    assert recorder.measured == []


def test_a_pair_that_the_grid_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the grid has no cell .* which a comparison names"):
        pairs_of(JOBS, more=[(Job.of("ddp", workers=2), JOBS[0])])


def test_every_cell_stands_beside_the_sequential_one_of_its_experiment() -> None:
    other = Job.of("processes", workers=2, experiment="other")
    found = pairs_of([*JOBS, other], more=[(JOBS[1], JOBS[2])], headlines=[JOBS[1]])
    assert {each.cells: each.headline for each in found} == {(1, 2): True, (1, 0): True, (2, 0): False, (3,): False}


def test_a_run_says_how_many_minutes_are_left(
    recorder: Recorder, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(photos, minutes=3)
    said = capsys.readouterr().err
    left = [int(found) for found in re.findall(r"(\d+) of 3 minutes left, \d+ of \d+ comparisons", said)]
    assert left and left == sorted(set(left), reverse=True) and left[0] <= 3
