"""What a grid knows of what was measured: traces apart, seeds and rounds that go on, first visits that can't end."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from lockstep.analysis.cells import median_of
from lockstep.analysis.confidence import MIN_ROUNDS
from lockstep.analysis.stored import read_stored
from lockstep.engine.job import LEARNING, Job
from lockstep.experiments.registry import every
from lockstep.measure.durations import Durations
from lockstep.measure.history import History
from lockstep.measure.planning import TRACES, Comparison
from lockstep.records import CONTENDED, MEASURED, TRACE, read_records
from made_up_measuring import JOBS, SPEED, Recorder, run
from planned_rounds import defaults

LEARNER = Job.of("sequential", experiment="learning", use_case="SimpleBig", epochs=1, network="default")
MIXED = [*JOBS[:2], LEARNER]


def of_variant_a(job: Job) -> bool:
    return job.variant == "a"


# --- traces ---


def test_a_trace_is_no_repetition_of_its_cell(recorder: Recorder, photos: Path) -> None:
    """A minute in one go with sampling on was a row of the cell, in its median as in its ratios."""
    recorder.trace_slowdown = 3.0
    folder = run(photos, minutes=30, traced=of_variant_a)
    stored = read_stored(folder)
    for name in ("sequential", "threads"):
        own = stored.records[stored.records["strategy"] == name]
        assert median_of(own, "images_per_second") == pytest.approx(SPEED[name], rel=0.03)
        assert own["images_per_second"].min() > SPEED[name] / 1.5
    assert set(stored.records["source"]) == {MEASURED} and set(stored.traces["source"]) == {TRACE}
    assert len(stored.traces) == 2 * TRACES
    assert set(stored.traces["round"]) == set(stored.table("resources")["round"])
    assert len(read_records(folder)) == len(stored.records) + len(stored.traces)


def test_a_disturbed_trace_is_left_out_with_its_samples(recorder: Recorder, photos: Path) -> None:
    recorder.disturbed = {"threads"}
    stored = read_stored(run(photos, minutes=30, traced=of_variant_a))
    assert stored.traces["reason"].str.contains(CONTENDED).any(), "some were disturbed"
    assert set(stored.quiet.traces["strategy"]) == set(stored.quiet.table("resources")["strategy"]) == {"sequential"}


def test_a_trace_without_samples_is_none(recorder: Recorder, photos: Path) -> None:
    """Workers that are begun again are other processes than those that were sampled."""
    recorder.sampled = False
    frame = read_records(run(photos, minutes=30, traced=of_variant_a))
    traces = frame[frame["source"] == TRACE]
    assert set(traces["status"]) == {"failed"} and traces["reason"].str.contains("no samples").all()
    assert traces.groupby("strategy").size().max() == 2, "and is given up after two attempts"


# --- durations ---


def test_two_cells_of_a_larger_round_were_visited_once_each(recorder: Recorder, photos: Path) -> None:
    """Of a round of three cells that held two of those chosen by `only`, a visit was taken to last half as long."""
    folder = run(photos, rounds=1)
    opened: Any = SimpleNamespace(path=folder, rounds_done=1, comparable={0}, same_software={0})
    chosen = [*JOBS[:2], Job.of("threads", workers=1, experiment="another")]
    whole, part = (History(opened, found_jobs(folder, jobs)).durations for jobs in (JOBS, chosen))
    assert [part.visit(place) for place in (0, 1)] == [whole.visit(place) for place in (0, 1)] != [math.nan] * 2


def test_a_cell_whose_partner_failed_was_visited_twice_all_the_same(recorder: Recorder, photos: Path) -> None:
    """Its row holds both visits of A B B A, and was read as one that took twice as long."""
    recorder.failing = {"threads"}
    folder = run(photos, minutes=1, jobs=[*JOBS[:2], Job.of("processes")])
    opened: Any = SimpleNamespace(path=folder, rounds_done=1, comparable={0}, same_software={0})
    assert History(opened, found_jobs(folder, [*JOBS[:2], Job.of("processes")])).durations.visit(0) == 2.0


def beside_committed(photos: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A folder in which nothing was measured yet, in a repository whose committed records are those of `run`."""
    monkeypatch.setattr("lockstep.measure.history.repository_root", lambda: photos.parent)
    monkeypatch.setattr("lockstep.measure.history.REFERENCE", "out")
    fresh = photos.parent / "fresh" / "02"
    return SimpleNamespace(path=fresh, rounds_done=0, comparable={0}, same_software={0})


def test_a_first_round_is_expected_to_take_as_long_as_in_the_committed_records(
    recorder: Recorder, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: in a fresh clone nothing told that a round of 09's pool takes eleven minutes with the stand-in's images, and
    it was begun with two and a half left, so that `make reproduce MINUTES=30` took 46."""
    committed, learner = run(photos, jobs=[*JOBS[:2], LEARNER], rounds=3), 2
    fresh = beside_committed(photos, monkeypatch)
    jobs = [job.with_(data_source="synthetic") for job in found_jobs(committed, [*JOBS[:2], LEARNER])]
    images = jobs[learner].images
    for times in (3.0, 0.5):
        jobs[learner] = jobs[learner].with_(images=int(times * images))
        expected = History(fresh, jobs).durations
        assert [expected.visit(place) for place in range(3)] == pytest.approx([2.0, 2.0, 2 * times]), "of other data"
    expected.note(0, 9.0)
    assert expected.visit(0) == 9.0, "what was seen here tells more"
    (committed / "records.csv").write_text("of another kind", encoding="utf-8")
    assert all(math.isnan(History(fresh, jobs).durations.visit(place)) for place in range(3))


def test_what_is_expected_of_a_pair_is_half_of_what_its_two_visits_took(
    recorder: Recorder, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traces tell nothing, and the run's own folder is no reference of itself."""
    recorder.seconds = {"threads": 5.0}
    committed = run(photos, minutes=10, traced=of_variant_a)
    frame = read_records(committed)
    assert (frame["source"] == TRACE).any() and (frame.groupby("round").size() == 2).any()
    fresh = beside_committed(photos, monkeypatch)
    expected = History(fresh, found_jobs(committed, JOBS[:2])).durations
    assert [expected.visit(place) for place in (0, 1)] == pytest.approx([2.0, 5.0])
    fresh.path = committed
    assert math.isnan(History(fresh, found_jobs(committed, JOBS[:2])).durations.visit(0))


def found_jobs(folder: Path, jobs: list[Job]) -> list[Job]:
    """As a run has them: with the photos that there are."""
    row = read_records(folder).iloc[0]
    return [job.with_(images=int(row["images"]), data_source=row["data_source"]) for job in jobs]


# --- seeds and rounds ---


def seeds(folder: Path) -> list[int]:
    frame = read_records(folder)
    return frame.loc[frame["experiment"].isin(LEARNING), "seed"].tolist()


@pytest.mark.parametrize("whole_first", [True, False])
def test_whole_rounds_and_minutes_go_on_with_each_others_seeds(
    recorder: Recorder, photos: Path, whole_first: bool
) -> None:
    """Two whole rounds and then minutes learnt with seeds 0 and 1 twice; minutes and then rounds measured no round."""
    budgets: list[dict[str, Any]] = [{"rounds": 2}, {"minutes": 0.5}]
    for budget in budgets if whole_first else reversed(budgets):
        folder = run(photos, jobs=MIXED, **budget)
    frame = read_records(folder)
    assert sorted(seeds(folder)) == list(range(len(seeds(folder)))), "each seed once, none left out"
    everything = [number for number, rows in frame.groupby("round") if len(rows) == len(MIXED)]
    assert len(everything) == 2
    assert sorted(frame["round"].unique()) == list(range(frame["round"].nunique()))
    assert set(frame.loc[~frame["experiment"].isin(LEARNING), "seed"]) == {0}
    run(photos, jobs=MIXED, minutes=60)
    assert sorted(seeds(folder)) == list(range(20)), "twenty in all, whichever way the first were measured"


@pytest.mark.slow
def test_rounds_of_the_whole_grid_count_for_its_comparisons(recorder: Recorder, photos: Path) -> None:
    """Their ratios are in the answer, so what they settle is settled."""
    folder = run(photos, rounds=40)
    run(photos, minutes=60)
    assert read_records(folder)["round"].nunique() == 40


def test_a_killed_seed_is_learnt_again(recorder: Recorder, photos: Path) -> None:
    recorder.stop_at = 3
    with pytest.raises(KeyboardInterrupt):
        run(photos, jobs=[LEARNER], minutes=10)
    recorder.stop_at = 10**9
    assert seeds(run(photos, jobs=[LEARNER], minutes=10)) == list(range(20))


def test_a_seed_that_failed_is_learnt_again(recorder: Recorder, photos: Path) -> None:
    recorder.failing = {"sequential"}
    run(photos, jobs=[LEARNER], minutes=10)
    recorder.failing = set()
    frame = read_records(run(photos, jobs=[LEARNER], minutes=10))
    assert frame.loc[frame["status"] == "ok", "seed"].tolist() == list(range(20))


def test_cells_that_do_not_learn_have_rounds_and_one_seed(recorder: Recorder, photos: Path) -> None:
    """Layers and messages of notebooks 03 and 04: as many rounds as an interval needs, all with the job's own seed."""
    alone = [Comparison((0,), rounds=MIN_ROUNDS)]
    frame = read_records(run(photos, jobs=JOBS[:1], minutes=10, comparisons=lambda jobs: alone))
    assert frame["round"].tolist() == list(range(MIN_ROUNDS)) and set(frame["seed"]) == {JOBS[0].seed}


@pytest.mark.parametrize("number", ["03", "04"])
def test_what_is_compared_with_nothing_there_does_not_learn(number: str) -> None:
    experiment = next(each for each in every() if each.name.startswith(number))
    assert experiment.grid is not None and experiment.comparisons is not None
    jobs = experiment.grid(defaults(experiment))
    alone = [each for each in experiment.comparisons(jobs) if len(each.cells) == 1]
    assert alone and {each.rounds for each in alone} == {MIN_ROUNDS}
    assert not {jobs[each.cells[0]].experiment for each in alone} & set(LEARNING)


def test_what_cannot_run_on_a_later_machine_gets_its_row_too(recorder: Recorder, photos: Path) -> None:
    """Only a folder's very first round held such rows."""
    gpu = Job.of("sequential", device="cuda")
    run(photos, jobs=JOBS[:2], minutes=0.5)
    frame = read_records(run(photos, jobs=[*JOBS[:2], gpu], minutes=0.5))
    assert (frame["device"] == "cuda").sum() == 1


# --- first visits ---


def test_a_first_round_that_cannot_end_is_given_up_after_its_first_visit(
    recorder: Recorder, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It overran two minutes by five."""
    recorder.visit_seconds = 100.0
    run(photos, jobs=JOBS[:2], minutes=2)
    assert len(recorder.measured) == 1 and recorder.clock.now == 100.0
    told = capsys.readouterr().err
    assert "given up after 1 of 4 visits: the others should take 5.0 minutes, and 0.3 are left" in told
    assert "1 were not begun, with 0.3 minutes left: a first round should take 6.7 minutes or more" in told
    assert not (photos.parent / "out" / "02" / "records.csv").exists()


def test_a_first_round_like_one_that_would_not_fit_is_not_begun(
    recorder: Recorder, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """60 s: a round of 40, and then another one, never measured yet, was begun with 20 s left."""
    recorder.visit_seconds = 10.0
    run(photos, minutes=1)
    assert recorder.clock.now == 40.0
    told = "1 were not begun, with 0.3 minutes left: a first round should take 0.7 minutes or more"
    assert told in capsys.readouterr().err
    run(photos, minutes=1)
    assert recorder.clock.now == 80.0, "and with a minute of its own it fits"


def test_a_run_of_slow_and_quick_cells_keeps_to_its_time(recorder: Recorder, photos: Path) -> None:
    """The slow one's first visit, after the five rounds of the A/A pair, is the one thing that nobody could know."""
    recorder.seconds = {"threads": 100.0, "sequential": 1.0}
    for minutes in (1.0, 2.0, 3.0, 5.0):
        began = recorder.clock.now
        run(photos, minutes=minutes)
        assert recorder.clock.now - began <= max(20.0 + 100.0, 60 * minutes)


def test_how_long_a_visit_takes_is_told_by_cells_like_it() -> None:
    jobs = [
        Job.of("sequential", experiment="table1", steps=7, warmup_steps=3),
        Job.of("processes", experiment="table1", workers=2, steps=7, warmup_steps=3, global_batch_size=32),
        Job.of("processes", experiment="table1", workers=2, steps=17, warmup_steps=3, global_batch_size=64),
        Job.of("sequential", experiment="table1", use_case="ComplexSmall", steps=7, warmup_steps=3),
        Job.of("sequential", experiment="input", use_case="ComplexSmall", steps=1, warmup_steps=0),
        LEARNER.with_(images=100),
        LEARNER.with_(images=400, variant="b"),
    ]
    known = Durations(jobs)
    assert math.isnan(known.visit(0)) and math.isnan(known.of_round(Comparison((0, 1))))
    for seconds in (8.0, 10.0, 9.0):
        known.note(0, seconds)
    assert known.visit(0) == known.visit(1) == 10.0, "the slowest, of the same experiment and use case"
    assert known.visit(2) == 40.0, "twice the steps of twice the batch"
    assert known.of_round(Comparison((0, 1))) == 40.0 and known.of_round(Comparison((1,), trace=True)) == 80.0
    assert known.visit(3) == 10.0, "else of the same experiment"
    known.note(3, 100.0)
    assert known.visit(4) == 100.0, "or use case; few images never make it shorter"
    assert math.isnan(known.visit(5)), "what learns is like nothing that is timed"
    known.note(5, 30.0)
    assert known.visit(6) == 120.0


def test_an_update_by_one_worker_is_of_its_share_alone() -> None:
    """Seen: first rounds of asynchronous training were held to take as many times too long as there are workers."""
    fields = {"experiment": "real", "workers": 4, "per_worker_batch_size": 8, "micro_batch": 1, "warmup_steps": 0}
    waits = Job.of("parameter_server", steps=10, policy="k_sync", policy_options="k=3", **fields)
    never = Job.of("parameter_server", steps=40, policy="asynchronous", **fields)
    known = Durations([waits, never])
    known.note(0, 5.0)
    assert known.visit(1) == 5.0


# --- thousands of rounds ---


def test_files_are_parsed_when_a_run_begins_and_never_again(
    recorder: Recorder, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round parsed all rounds before it: records, and every step."""
    parsed: list[object] = []
    read = pd.read_csv
    monkeypatch.setattr(pd, "read_csv", lambda *of, **how: parsed.append(of) or read(*of, **how))
    counts = []
    for minutes in (1, 4):
        before = len(parsed)
        folder = run(photos, minutes=minutes, comparisons=lambda jobs: [Comparison((0, 1), rounds=1000)])
        counts.append(len(parsed) - before)
    assert read_records(folder)["round"].nunique() >= 35
    assert counts[0] == 0, "an empty folder holds nothing to parse"
    assert counts[1] <= 8, "two tables and the records, each with its header"
