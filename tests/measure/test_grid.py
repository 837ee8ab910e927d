"""Running a grid: rounds are whole, variants take turns, and a cell that can't run is a row that says why."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.engine.cgroups import free_memory
from lockstep.engine.cores import usable_cores
from lockstep.engine.job import OF_LEARNING, Job
from lockstep.engine.launch import LAUNCHERS, WorkerFailed
from lockstep.engine.training.loop import STEP_COLUMNS, Trace
from lockstep.engine.training.scores import DIVERGED
from lockstep.engine.usecases import Source
from lockstep.experiments.e03_pipelined_model_parallelism.stage_tables import TABLE_CELL
from lockstep.measure.cell import measure_job
from lockstep.measure.contention import Contention
from lockstep.measure.durations import Durations
from lockstep.measure.environment import NO_CUDA
from lockstep.measure.probes.exchange import run_exchange
from lockstep.measure.probes.operators import run_profile
from lockstep.measure.progress import one_line
from lockstep.measure.round import measure_round
from lockstep.measure.summary import merged, slowest_steps, summarise
from lockstep.measure.teams import GIB, START_BYTES, Teams
from lockstep.measure.traced_tables import traced_tables
from lockstep.records import RunFolder, make_row, read_records, read_traced_table


def trace(rank: int, *steps: dict[str, float], startup: float = 1.0, **scores: float) -> Trace:
    zeros = dict.fromkeys(STEP_COLUMNS, 0.0)
    return Trace(rank, startup, began=0.0, ended=1e12, steps=[zeros | step for step in steps], scores=scores)


# --- summarise ---


def test_a_row_holds_the_slowest_ranks_mean() -> None:
    """Steps of 10 and of 5 images: images/s counts those that were there."""
    job = Job.of("threads", workers=2, per_worker_batch_size=5, images=100)
    first = trace(
        0,
        {"step_seconds": 0.4, "compute_seconds": 0.3, "wait_seconds": 0.1, "train_loss": 0.5, "images": 5},
        {"step_seconds": 0.6, "compute_seconds": 0.5, "bytes_sent": 16, "train_loss": 0.3, "images": 3},
        startup=2.0,
        test_accuracy=0.75,
    )
    second = trace(
        1,
        {"step_seconds": 0.4, "compute_seconds": 0.1, "wait_seconds": 0.3, "train_loss": 0.7, "images": 5},
        {"step_seconds": 0.8, "compute_seconds": 0.1, "train_loss": 0.1, "decode_seconds": 0.4, "images": 2},
    )
    got = summarise(job, [first, second])
    expected = {
        "step_seconds": 0.5, "compute_seconds": 0.4, "wait_seconds": 0.15, "decode_seconds": 0.2, "bytes_sent": 8.0,
        "startup_seconds": 2.0, "test_accuracy": 0.75, "train_loss": 0.8, "images_per_second": 7.5 / 0.5,
        "epoch_seconds": 100 * 0.5 / 7.5, "input_seconds": 0.0, "exchange_seconds": 0.0, "update_seconds": 0.0,
        "forward_seconds": 0.0, "backward_seconds": 0.0,
    }  # fmt: skip
    assert got == pytest.approx(expected)
    make_row(job, got)


def test_a_server_that_is_asked_less_often_than_workers_step() -> None:
    """Two steps of the workers, one update of the server: its seconds are per step of the workers."""
    job = Job.of("algorithm_1", workers=1)
    worker = trace(0, {"step_seconds": 0.4, "images": 32}, {"step_seconds": 0.6, "images": 32})
    server = trace(1, {"step_seconds": 1.0, "update_seconds": 0.2, "bytes_sent": 10})
    got = summarise(job, [worker, server])
    assert (got["step_seconds"], got["update_seconds"], got["bytes_sent"]) == (0.5, 0.1, 5.0)
    assert got["images_per_second"] == 64.0


def test_every_step_of_every_rank_is_kept_where_it_is_asked_for() -> None:
    traces = [trace(rank, {"step_seconds": 0.4}, {"step_seconds": 0.6}) for rank in range(2)]
    job = Job.of("processes", workers=2, experiment="timeline", round=3, variant="b")  # resources: of "a" alone
    steps = traced_tables(job, traces, None)["timeline"]  # type: ignore[arg-type]
    assert steps["rank"].tolist() == [0, 0, 1, 1]
    assert steps["start_seconds"].tolist() == [0.0, 0.4, 0.0, 0.4]
    assert (steps[["strategy", "launcher", "hosts", "round"]] == ["processes", "processes", 1, 3]).all(axis=None)
    (kept,) = traced_tables(job.with_(experiment="speed"), traces, None).values()  # type: ignore[arg-type]
    assert list(kept.columns) == ["step", "seconds"], "of other experiments the times alone"


def test_the_raw_time_of_a_step_is_that_of_its_slowest_rank() -> None:
    """A server that updates less often than the workers step has fewer rows."""
    workers = [trace(0, {"step_seconds": 0.4}, {"step_seconds": 0.6}), trace(1, {"step_seconds": 0.5}, {})]
    assert slowest_steps([*workers, trace(2, {"step_seconds": 0.45})]).tolist() == [0.5, 0.6]


def test_a_step_that_was_disturbed_now_and_then_does_not_count() -> None:
    """0.4 s, and once 0.8: the lower quartile of five steps is 0.4; where exchanges are rare, the mean counts."""
    steps = [{"step_seconds": seconds, "images": 8} for seconds in (0.4, 0.8, 0.4, 0.4, 0.4)]
    got = summarise(Job.of("sequential"), [trace(0, *steps)])
    assert got["step_seconds"] == pytest.approx(0.4) and got["images_per_second"] == pytest.approx(20.0)
    rare = Job.of("sparknet_tau", workers=1, exchange_every=5, steps=5, warmup_steps=5)
    assert summarise(rare, [trace(0, *steps)])["step_seconds"] == pytest.approx(0.48)


def test_what_a_pipeline_traced_says_which_cell_it_is_of() -> None:
    rows: list[dict[str, float | str]] = [
        {"rank": 0, "stage": 0, "seconds": 0.1},
        {"rank": 1, "stage": 1, "seconds": 0.2},
    ]
    job = Job.of("1f1b", workers=2, experiment="schedules", global_batch_size=64, round=3)
    traced = Trace(0, tables={"actions": rows, "operators": [{"calls": 1.0}]})
    found = traced_tables(job, [traced, Trace(1)], None)  # type: ignore[arg-type]
    own = found["actions"]
    assert own["seconds"].tolist() == [0.1, 0.2] and own["stages"].tolist() == [2, 2]
    names = [*TABLE_CELL, "round"]
    assert own.iloc[0][names].tolist() == [getattr(job, name) for name in names]
    assert "stages" not in found["operators"], "a table of another kind stays as it is"


def test_idle_time_is_the_mean_over_the_ranks_of_a_pipeline() -> None:
    steps = [trace(rank, {"step_seconds": 0.5, "idle_seconds": idle}) for rank, idle in enumerate((0.1, 0.3))]
    job = Job.of("1f1b", workers=2, global_batch_size=64)
    assert summarise(job, steps)["idle_seconds"] == pytest.approx(0.2)
    assert "idle_seconds" not in summarise(Job.of("processes", workers=2), steps)


def test_a_cell_that_was_visited_twice_is_one_row() -> None:
    """Two visits with the same images: 10 and 30 images/s are 15 on average, as the time for all of them is."""
    job = Job.of("sequential")
    times = {"images_per_second": 10.0, "step_seconds": 0.3, "peak_pss_bytes": 5.0, "measuring_seconds": 2.0}
    again = {"images_per_second": 30.0, "step_seconds": 0.1, "peak_pss_bytes": 7.0, "measuring_seconds": 1.0}
    both = [make_row(job, times), make_row(job, again)]
    assert [merged(both)[name] for name in times] == [15.0, 0.2, 7.0, 3.0]
    disturbed = [both[0], make_row(job, again, reason="contended")]
    assert merged(disturbed)["reason"] == "contended", "of one visit is of the round"
    failed = make_row(job, {}, status="failed", reason="bad")
    assert merged([both[0], failed]) is failed, "half a cell is no cell"


@pytest.mark.parametrize("killed", [0, 1])
def test_a_worker_killed_in_a_contended_cells_other_visit_leaves_a_failed_row(
    killed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Seen: on a busy machine the row of the first attempt stayed, and nothing told of the worker, 2 of 2 times."""
    monkeypatch.setattr(Contention, "contended", lambda self: True)
    outcomes: list[list[Trace] | Exception] = [[trace(0, STEP)], [trace(0, STEP)]]
    outcomes[killed] = WorkerFailed(1, "step 3, phase compute", "was killed by SIGKILL", "more")
    teams = OneTeam([])

    def run(*_: object) -> list[Trace]:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(teams.only, "run", run)
    jobs = [Job.of("processes", workers=2)]
    found = measure_round(
        jobs, (0, 0), number=0, seeds={}, session=0, sources={}, teams=teams, durations=Durations(jobs)
    )
    assert not outcomes and found.failed, "both visits were made"
    with RunFolder(tmp_path, {}, {}) as folder:
        folder.write_round(found.rows, found.tables)
    (row,) = read_records(tmp_path).to_dict("records")
    assert (row["status"], row["reason"]) == ("failed", "rank 1 was killed by SIGKILL (step 3, phase compute)")


def test_reduce_and_update_alone_train_nothing() -> None:
    job = Job.of("processes", workers=2, experiment="exchange", input="none", images=100)
    got = summarise(job, [trace(0, {"step_seconds": 0.5, "exchange_seconds": 0.25}), trace(1, {})])
    assert got["exchange_seconds"] == 0.25
    assert not {"images_per_second", "epoch_seconds", "train_loss"} & set(got)


# --- measure_job ---


class Team:
    """Like a team whose worker is this process; `outcome` is what its runs give or raise."""

    def __init__(self, outcome: list[Trace] | Exception) -> None:
        self.outcome, self.pids, self.calls = outcome, [os.getpid()], []
        self.starts, self.running, self.start_seconds = 0, False, 2.5
        self.repeated = ""

    def start(self) -> None:
        self.starts += not self.running
        self.running = True

    def close(self) -> None:
        self.running = False

    def run(self, job: Job, site: object, function: object) -> list[Trace]:
        self.calls.append((job, site, function))
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class OneTeam(Teams):
    def __init__(self, outcome: list[Trace] | Exception) -> None:
        super().__init__()
        self.only = Team(outcome)

    def team(self, job: Job) -> Any:
        return self.only


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that nobody else uses, whatever runs beside these tests."""
    monkeypatch.setattr(Contention, "contended", lambda self: False)


STEP = {"step_seconds": 0.5, "train_loss": 1.0, "images": 32.0}


@pytest.mark.usefixtures("quiet")
def test_a_start_is_measured_on_a_team_that_was_closed_before() -> None:
    teams = OneTeam([trace(0, STEP)])
    teams.only.start()
    row, _, _ = measure_job(Job.of("sequential", experiment="table1"), None, teams)
    assert row["launch_seconds"] == 2.5 and teams.only.starts == 1, "a warm team stays"
    measure_job(Job.of("sequential", experiment="start"), None, teams)
    assert teams.only.starts == 2


@pytest.mark.usefixtures("quiet")
def test_what_links_carry_is_counted_once_per_host() -> None:
    job = Job.of("mpi_allreduce", workers=4, hosts=2, link_bits_per_second=1e9)
    sent = [{"link_bytes_sent": 100.0, "link_bytes_received": 20.0, "images": 8, "step_seconds": 1.0}] * 2
    sent += [{"link_bytes_sent": 30.0, "link_bytes_received": 110.0, "images": 8, "step_seconds": 1.0}] * 2
    got = summarise(job, [trace(rank, step) for rank, step in enumerate(sent)])
    assert (got["link_bytes_sent"], got["link_bytes_busiest"]) == (130.0, 110.0)


def test_what_a_server_is_still_sending_when_it_looks_at_its_link_is_counted_where_it_arrives() -> None:
    """50 of its 200 bytes were under way, and missing from the row."""
    job = Job.of("parameter_server", workers=2, hosts=3, launcher="mpiexec", link_bits_per_second=1e9)
    assert job.ranks == 3
    worker = {"link_bytes_sent": 90.0, "link_bytes_received": 100.0, "images": 8, "step_seconds": 1.0}
    server = {"link_bytes_sent": 150.0, "link_bytes_received": 180.0, "step_seconds": 1.0}
    got = summarise(job, [trace(0, worker), trace(1, worker), trace(2, server)])
    assert (got["link_bytes_sent"], got["link_bytes_busiest"]) == (380.0, 180.0)


@pytest.mark.usefixtures("quiet")
def test_a_cell_that_works() -> None:
    teams = OneTeam([trace(0, STEP)])
    job = Job.of("sequential", experiment="table1", images=64, round=3)
    row, tables, disturbed = measure_job(job, Source("photos", "real", 64), teams, traced=True)
    assert (row["status"], row["reason"], disturbed) == ("ok", "", False)
    assert row["images_per_second"] == 64.0
    assert row["peak_pss_bytes"] > 1e6
    assert row["other_cpu_seconds"] >= 0
    samples = tables["resources"]
    assert len(samples) >= 1
    for name in ("experiment", "use_case", "strategy", "round", "workers", "device"):
        assert set(samples[name]) == {getattr(job, name)}
    ((_, site, function),) = teams.only.calls
    assert site.data_root == "photos"
    assert function is None


@pytest.mark.usefixtures("quiet")
def test_a_cell_that_is_not_traced_leaves_no_samples() -> None:
    row, tables, _ = measure_job(Job.of("sequential", experiment="table1"), None, OneTeam([trace(0, STEP)]))
    assert (row["status"], list(tables)) == ("ok", ["steps"])


@pytest.mark.usefixtures("quiet")
def test_samples_say_whether_the_cell_was_loading_or_training() -> None:
    loading, over = trace(0, STEP), trace(0, STEP)
    loading.began = 1e12  # long after this process was sampled
    over.began, over.ended = -2.0, -1.0  # long before
    kept = [
        measure_job(Job.of("sequential", experiment="table1"), None, OneTeam([found]), traced=True)[1]["resources"]
        for found in (loading, over)
    ]
    assert set(kept[0]["phase"]) == {"load"} and len(kept[1]) == 0


@pytest.mark.usefixtures("quiet")
def test_what_is_allowed_but_worth_a_warning_is_recorded() -> None:
    workers = len(usable_cores()) + 1
    job = Job.of("threads", workers=workers, global_batch_size=2 * workers + 1, images=1)
    row, *_ = measure_job(job, None, OneTeam([trace(0, STEP)]))
    assert row["status"] == "ok"
    for part in ("workers share cores", "some have nothing to train on", "is not divisible by"):
        assert part in row["reason"]


def test_a_disturbed_cell_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Contention, "contended", lambda self: True)
    row, _, disturbed = measure_job(Job(), None, OneTeam([trace(0, STEP)]))
    assert (row["status"], row["reason"], disturbed) == ("ok", "contended", True)


@pytest.mark.usefixtures("quiet")
def test_a_cell_that_was_begun_again_says_why() -> None:
    teams = OneTeam([trace(0, STEP)])
    teams.only.repeated = "begun again after an executor was lost"
    row, *_ = measure_job(Job(), None, teams)
    assert (row["status"], row["reason"]) == ("ok", "begun again after an executor was lost")


# --- learning ---


LEARNT: dict[str, Any] = {"experiment": "learning", "epochs": 2, "scored_on": "test", "network": "cnn", "dropout": 0.5}


def learnt() -> Trace:
    """15 steps of 0.5 s as their sum, and what a run tells of itself."""
    made = trace(0, {"step_seconds": 7.5, "train_loss": 9.0, "images": 480.0})
    made.summed = 15
    made.scores = {"test_accuracy": 0.9, "train_loss": 0.2, "updates_done": 15, "training_seconds": 7.5}
    made.tables["epochs"] = [
        {"epoch": epoch, "train_loss": 1 / epoch, "learning_rate": 0.1 / epoch} for epoch in (1.0, 2.0)
    ]
    made.tables["confusion"] = [{"split": "test", "actual": "0", "predicted": "1", "count": 3.0}]
    made.tables["actions"] = [{"rank": 0.0, "seconds": 0.1}]
    return made


@pytest.mark.usefixtures("quiet")
def test_a_cell_that_learns_tells_its_steps_and_what_it_reached(capsys: pytest.CaptureFixture[str]) -> None:
    job = Job.of("sequential", **LEARNT, images=320, seed=4, round=4)
    row, tables, _ = measure_job(job, None, OneTeam([learnt()]))
    assert (row["step_seconds"], row["images_per_second"]) == (0.5, 64.0)
    assert (row["train_loss"], row["test_accuracy"], row["updates_done"]) == (0.2, 0.9, 15)
    assert set(tables) == {"epochs", "confusion"}, "what stages did is no matter there"
    for frame in tables.values():
        for name in ("experiment", "use_case", "round", "launcher", "framework", "global_batch_size", *OF_LEARNING):
            told = f"job_{name}" if name == "learning_rate" and "epoch" in frame else name
            assert (frame[told] == getattr(job, name)).all(), name
    assert tables["epochs"]["epoch"].tolist() == [1, 2]
    assert tables["epochs"]["learning_rate"].tolist() == [0.1, 0.05], "of that epoch, not what the job asks for"
    assert one_line(row) == "15 updates in 7.5 s, 90.0% test"


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("name", ["train_accuracy", "validation_accuracy", "test_accuracy"])
def test_a_cell_that_diverged_failed(name: str) -> None:
    """As an ok row without an accuracy it was left out of means over seeds, and nothing told of it."""
    trained = learnt()
    trained.scores[name] = math.nan
    row, tables, _ = measure_job(Job.of("sequential", **LEARNT, images=320), None, OneTeam([trained]))
    assert (row["status"], row["reason"]) == ("failed", DIVERGED)
    assert row["updates_done"] == 15 and set(tables) == {"epochs", "confusion"}, "how it came to that is kept"


def test_rounds_of_learning_have_seeds_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result does not depend on who else used the machine; a time does."""
    monkeypatch.setattr(Contention, "contended", lambda self: True)
    teams = OneTeam([learnt()])
    jobs = [Job.of("sequential", **LEARNT), Job.of("sequential", experiment="table1")]
    given: dict[str, Any] = {"session": 0, "sources": {}, "teams": teams, "durations": Durations(jobs)}
    with RunFolder(tmp_path, {}, {}) as run:
        for number in range(2):
            found = measure_round(jobs, (0, 1), number=number, seeds={0: number}, **given)
            run.write_round(found.rows, found.tables)
    asked = [(job.experiment, job.round, job.seed) for job, *_ in teams.only.calls]
    assert asked == [("learning", 0, 0), ("table1", 0, 0), ("learning", 1, 1), ("table1", 1, 0)]
    confusion = read_traced_table(tmp_path, "confusion")
    assert confusion is not None
    own = confusion[confusion["experiment"] == "learning"]
    assert own["actual"].tolist() == ["0", "0"], "a class may be called so"
    assert own["seed"].tolist() == [0, 1] and own["batch_norm"].tolist() == [False, False]


# --- teams ---


@pytest.fixture
def warm(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Launchers of teams that start nothing: the names of those that run, in the order of their starts."""
    running: list[str] = []

    class Noted(Team):
        def __init__(self, name: str) -> None:
            super().__init__([trace(0, STEP)])
            self.name, self.cores = name, []

        def start(self) -> None:
            if self.name not in running:
                running.append(self.name)

        def close(self) -> None:
            if self.name in running:
                running.remove(self.name)

    for name, kind in LAUNCHERS.items():

        def of(job: Job, heavy_when_idle: bool = kind.heavy_when_idle) -> Any:
            return SimpleNamespace(team=Noted(f"{job.launcher} {job.workers}"), heavy_when_idle=heavy_when_idle)

        monkeypatch.setitem(LAUNCHERS, name, SimpleNamespace(of=of, heavy_when_idle=kind.heavy_when_idle))
    return running


HEAVY_ORDER = (("processes", 2), ("spark_allreduce", 2), ("sparknet", 2), ("sparknet", 1), ("sparknet", 1), ("ddp", 2))


def warm_after_each(warm: list[str], free: Callable[[], int], order: Sequence[tuple[str, int]]) -> list[list[str]]:
    teams, seen = Teams(free), []
    for name, workers in order:
        row, *_ = measure_job(Job.of(name, workers=workers), None, teams)
        assert row["status"] == "ok"
        seen.append(list(warm))
    return seen


@pytest.mark.usefixtures("quiet")
def test_teams_that_hold_gigabytes_end_where_memory_is_scarce(warm: list[str]) -> None:
    assert warm_after_each(warm, lambda: 0, HEAVY_ORDER) == [
        ["processes 2"],
        ["processes 2", "spark 2"],
        ["processes 2", "spark_driver 2"],
        ["processes 2", "spark_driver 1"],
        ["processes 2", "spark_driver 1"],
        ["processes 2"],
    ]


@pytest.mark.usefixtures("quiet")
def test_teams_that_hold_gigabytes_stay_warm_where_there_is_room(warm: list[str]) -> None:
    seen = warm_after_each(warm, lambda: START_BYTES, HEAVY_ORDER)
    assert seen[-1] == ["processes 2", "spark 2", "spark_driver 2", "spark_driver 1"]


@pytest.mark.usefixtures("quiet")
def test_the_longest_unused_team_makes_room_and_a_warm_one_needs_less(warm: list[str]) -> None:
    """A round A B B A restarts neither, and a third team ends the one that was used longest ago."""
    heavy = 6 * GIB

    def free() -> int:
        return 24 * GIB - heavy * sum(name.startswith("spark") for name in warm)

    order = [("sparknet", 2), ("spark_allreduce", 2), ("spark_allreduce", 2), ("sparknet", 2), ("sparknet", 1)]
    seen = warm_after_each(warm, free, order)
    assert seen[3] == ["spark_driver 2", "spark 2"], "both stayed warm through the round"
    assert seen[4] == ["spark_driver 2", "spark_driver 1"], "the other one was used more recently"


@pytest.mark.usefixtures("quiet")
def test_a_team_that_ended_for_lack_of_memory_starts_again(warm: list[str]) -> None:
    seen = warm_after_each(warm, lambda: 0, [("sparknet", 2), ("ddp", 2), ("sparknet", 2)])
    assert seen == [["spark_driver 2"], ["processes 2"], ["processes 2", "spark_driver 2"]]


def test_free_memory_is_what_the_machine_and_its_control_groups_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.engine.cgroups.memory_left", lambda: 5)
    assert free_memory() == 5
    monkeypatch.setattr("lockstep.engine.cgroups.memory_left", lambda: None)
    assert free_memory() > 5


def test_cells_of_such_a_team_stand_in_a_row_and_all_others_where_they_fell(warm: list[str]) -> None:
    names = ["sequential", "sparknet", "spark_allreduce", "processes", "sparknet_files", "spark_shared_memory", "ddp"]
    jobs = [Job.of(name, workers=1 if name == "sequential" else 2) for name in names]
    order = Teams().in_a_row(jobs, [3, 4, 0, 2, 6, 1, 5])
    assert [names[index] for index in order] == [
        "processes", "sparknet_files", "sparknet", "sequential", "spark_allreduce", "spark_shared_memory", "ddp"
    ]  # fmt: skip


def test_a_cell_that_fails_is_a_row_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    failure = WorkerFailed(1, "step 3, phase compute", "raised ValueError: bad", "Traceback ...\n  in forward\n")
    row, samples, disturbed = measure_job(Job(), None, OneTeam(failure))
    assert (row["status"], row["reason"]) == ("failed", "rank 1 raised ValueError: bad (step 3, phase compute)")
    assert row["images_per_second"] is None
    assert (samples, disturbed) == ({}, False)
    assert "in forward" in capsys.readouterr().err, "the worker's own traceback is shown"


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_what_the_machine_lacks_is_skipped(monkeypatch: pytest.MonkeyPatch, precision: str) -> None:
    monkeypatch.setattr("lockstep.measure.environment.cuda_devices", lambda: 0)
    teams = OneTeam(AssertionError("must not run"))
    row, samples, _ = measure_job(Job(device="cuda", precision=precision), None, teams)
    assert (row["status"], row["reason"], samples) == ("skipped", NO_CUDA, {})
    assert teams.only.calls == []


@pytest.mark.usefixtures("quiet")
def test_reduce_and_update_alone_have_a_function_of_their_own() -> None:
    teams = OneTeam([trace(0, {"exchange_seconds": 0.1})])
    row, *_ = measure_job(Job(experiment="exchange", input="none"), None, teams)
    assert teams.only.calls[0][2] is run_exchange
    assert (row["status"], row["images_per_second"], row["exchange_seconds"]) == ("ok", None, 0.1)


@pytest.mark.usefixtures("quiet")
def test_a_profile_has_a_table_and_no_steps() -> None:
    """Its rows are told from other cells' by the same columns as resource samples."""
    profiled = Trace(0, scores={"flops_per_image": 4e9}, tables={"operators": [{"operators": "ReLU", "seconds": 0.5}]})
    job = Job.of("sequential", experiment="profile", round=2)
    teams = OneTeam([profiled])
    row, tables, _ = measure_job(job, None, teams)
    assert teams.only.calls[0][2] is run_profile
    assert (row["flops_per_image"], row["step_seconds"], row["status"]) == (4e9, None, "ok")
    (operator,) = tables["operators"].to_dict("records")
    assert operator == {
        "operators": "ReLU", "seconds": 0.5, "experiment": "profile", "use_case": "SimpleBig", "round": 2,
        "strategy": "sequential", "workers": 1, "device": "cpu",
        "framework": "torch", "network": "default", "global_batch_size": 32,
    }  # fmt: skip
