"""SparkNet computes what one worker does, and with tau > 1 what local SGD does."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import lockstep
import tiny
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job
from lockstep.engine.launch import LAUNCHERS, Launcher, Team
from lockstep.engine.models.losses import cross_entropy
from lockstep.engine.peers import sparknet_worker
from lockstep.engine.peers.sparknet_driver import ExecutorFailed, _Windows
from lockstep.engine.training import checkpoint
from lockstep.engine.training.loop import Site, run_job
from together import TOLERANCE, Teams, alone, small_job

AVERAGED = {"opt_weight": "mean", "state_averaged": True}
VARIANTS: dict[str, dict[str, Any]] = {
    "rdd": {"executor_data": "rdd"},
    "files": {"executor_data": "files"},
    "rdd-weights": {"executor_data": "rdd"} | AVERAGED,
    "files-weights": {"executor_data": "files"} | AVERAGED,
}
SYNCHRONOUS = pytest.mark.parametrize("variant", VARIANTS)


def job(workers: int = 2, **options: Any) -> Job:
    return small_job(launcher="spark_driver", sync="sparknet", workers=workers, **options)


def run(teams: Teams, this: Job, case: Any, path: Path, **site: object) -> torch.Tensor:
    """Parameters that it reaches. The driver is the only rank, whatever the workers."""
    team = teams.of("spark_driver", this.workers)
    team.run(this, Site(use_case=case, checkpoint=str(path), **site))  # type: ignore[arg-type]
    return checkpoint.read(str(path))["parameters"]


@SYNCHRONOUS
def test_the_parameters_are_those_of_one_worker(teams: Teams, variant: str, tmp_path: Path) -> None:
    """Three epochs of 37 samples in batches of 8: every epoch ends with an uneven batch of 5, dropout is on."""
    case = tiny.case()
    expected = alone(case, tmp_path / "alone")
    got = run(teams, job(**VARIANTS[variant]), case, tmp_path / "c")
    assert (got - expected).abs().max() < TOLERANCE


@pytest.mark.parametrize("variant", ["rdd", "files-weights"])
def test_a_last_batch_smaller_than_the_workers(teams: Teams, variant: str, tmp_path: Path) -> None:
    """37 samples in batches of 36 leave 1 for two workers: one of them has an empty share."""
    case = tiny.case()
    expected = alone(case, tmp_path / "alone", global_batch_size=36, steps=4)
    got = run(teams, job(global_batch_size=36, steps=4, **VARIANTS[variant]), case, tmp_path / "c")
    assert (got - expected).abs().max() < TOLERANCE


def test_tau_steps_are_local_sgd(teams: Teams, tmp_path: Path) -> None:
    case = tiny.case()
    options = {"exchange_every": 5, "state_averaged": True}
    expected = teams.together(
        small_job(launcher="threads", sync="local_sgd", workers=2, **options), case, tmp_path / "l"
    )
    got = run(teams, job(executor_data="files", opt_weight="mean", **options), case, tmp_path / "c")
    assert (got - expected).abs().max() < TOLERANCE
    assert (got - alone(case, tmp_path / "alone")).abs().max() > 1e-4, "which is not what one worker comes to"


def test_resume_reaches_the_unbroken_runs_parameters_exactly(teams: Teams, tmp_path: Path) -> None:
    case, variant = tiny.case(), VARIANTS["files-weights"]
    unbroken = run(teams, job(**variant), case, tmp_path / "unbroken")
    first = run(teams, job(steps=7, **variant), case, tmp_path / "broken")
    assert not torch.equal(first, unbroken)
    assert torch.equal(run(teams, job(**variant), case, tmp_path / "broken", resume=True), unbroken)


@pytest.mark.parametrize("variant", ["rdd", "files-weights"])
def test_a_resumed_run_draws_what_the_unbroken_one_draws(teams: Teams, variant: str, tmp_path: Path) -> None:
    """Dropout that is no module drew from generators that nothing seeded: two runs of the same seed differed."""
    case, options = tiny.case(model=tiny.drawing_net), VARIANTS[variant]
    unbroken = run(teams, job(**options), case, tmp_path / "unbroken", draws=True)
    run(teams, job(steps=7, **options), case, tmp_path / "broken", draws=True)
    resumed = run(teams, job(**options), case, tmp_path / "broken", draws=True, resume=True)
    assert torch.equal(resumed, unbroken)
    other = job(**options).with_(seed=1)
    assert not torch.equal(run(teams, other, case, tmp_path / "other", draws=True), unbroken)


def test_running_statistics_are_the_mean_over_executors(teams: Teams, tmp_path: Path) -> None:
    case = tiny.case(model=tiny.normalised_net, test=tiny.arrays(13))
    path, other = tmp_path / "c", tmp_path / "processes"
    trace = teams.of("spark_driver", 2).run(job(steps=1, **VARIANTS["files"]), _site(case, path))[0]
    assert 0 <= trace.scores["test_accuracy"] <= 1
    teams.run(small_job(launcher="processes", sync="allreduce", workers=2, steps=1), case, other)
    of_spark, expected = (checkpoint.read(str(each)) for each in (path, other))
    assert expected["buffers"].numel() == 10 and (of_spark["buffers"] - expected["buffers"]).abs().max() < 1e-6
    assert of_spark["others"] == expected["others"] == {"1.num_batches_tracked": torch.tensor(1)}


def _site(case: Any, path: Path) -> Any:
    return Site(use_case=case, checkpoint=str(path), evaluate=True)


def test_every_step_and_every_window_is_measured(teams: Teams) -> None:
    this = job(executor_data="files", opt_weight="mean", exchange_every=3, steps=6, warmup_steps=3)
    trace = teams.of("spark_driver", 2).run(this, Site(use_case=tiny.case()))[0]
    assert len(trace.steps) == 6
    for times in trace.steps:
        parts = [times[f"{name}_seconds"] for name in ("input", "compute", "wait", "exchange", "update")]
        assert all(part >= 0 for part in parts) and sum(parts) == pytest.approx(times["step_seconds"])
    rows = trace.tables["spark"]
    assert [(row["window"], row["partition"]) for row in rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert all(0 < float(row["task_seconds"]) < float(row["job_seconds"]) for row in rows)


@pytest.mark.parametrize("data", ["rdd", "files"])
def test_python_workers_are_used_again(teams: Teams, data: str, tmp_path: Path) -> None:
    """Seen: a window that left records unread cost its Python worker, and each one after it the import of torch."""
    case = tiny.case(loss=functools.partial(noting_loss, str(tmp_path)))
    teams.of("spark_driver", 2).run(job(executor_data=data, steps=4), Site(use_case=case))
    assert len(list(tmp_path.iterdir())) == 2, "a process per executor"


def noting_loss(folder: str, output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Leaves a file named by each process that trains."""
    Path(folder, str(os.getpid())).touch()
    return cross_entropy(output, labels)


def test_losses_are_those_of_one_worker(teams: Teams) -> None:
    case = tiny.case()
    expected = run_job(small_job(), ThreadGroup.of(1)[0], Site(use_case=case))
    got = teams.of("spark_driver", 2).run(job(**VARIANTS["rdd"]), Site(use_case=case))[0]
    losses = [[step["train_loss"] for step in trace.steps] for trace in (got, expected)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


class Lent:
    """A warm team for one call of `lockstep.train`, which starts and ends one of its own otherwise."""

    def __init__(self, warm: Team) -> None:
        self.run = warm.run

    def close(self) -> None:
        """The warm team stays."""

    kill = close


@pytest.mark.parametrize(("launcher", "sync"), [("spark_driver", "sparknet"), ("spark", "allreduce")])
def test_a_readers_own_model(
    teams: Teams, launcher: str, sync: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`lockstep.train` on Spark: the same model as from one process, with a checkpoint that can be resumed."""
    warm, asked = teams.of(launcher, 2), []

    def lend(_: Launcher, *how: Any) -> Lent:
        asked.append(how)
        return Lent(warm)

    monkeypatch.setattr(LAUNCHERS[launcher], "make_team", lend)
    data = tiny.arrays()
    shared: dict[str, Any] = {"data": (data.images, data.labels), "global_batch_size": 8, "optimiser": tiny.SGD}
    case = {"sync": sync, "launcher": launcher, "workers": 2, "checkpoint": tmp_path / "c"}
    first = lockstep.train(tiny.net, **shared, **case)
    got = lockstep.train(tiny.net, **shared, **case, epochs=2, resume=True)
    assert asked == 2 * [(warm.cores, 1, warm.environment)], "the very team that is lent"
    expected = lockstep.train(tiny.net, **shared, sync="local", workers=1, epochs=2)
    assert first.losses + got.losses == pytest.approx(expected.losses, abs=1e-6) and len(got.losses) == 5
    for ours, theirs in zip(got.model.parameters(), expected.model.parameters(), strict=True):
        assert (ours - theirs).abs().max() < TOLERANCE


def test_a_sum_of_some_partitions_is_no_result() -> None:
    """A JVM that ends while it hands results over leaves those that have come, and no error."""
    job = SimpleNamespace(treeAggregate=lambda *_, depth: (None, [sparknet_worker.WindowTimes(0)]))
    windows = object.__new__(_Windows)
    windows.context = SimpleNamespace(broadcast=lambda _: SimpleNamespace(destroy=lambda blocking: None))
    windows.partitions = SimpleNamespace(mapPartitionsWithIndex=lambda _: job)
    windows.workers, windows.name, windows.assigned = 2, "run", None
    with pytest.raises(ExecutorFailed, match="results of 1 of 2 partitions have come"):
        windows.run(None, range(1))  # type: ignore[arg-type]


def test_after_a_run_an_executor_holds_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """SimpleBig's memory counted VGG16's replica, which its executors still had."""
    closed: list[str] = []
    held = {"run": SimpleNamespace(loader=SimpleNamespace(close=lambda: closed.append("loader")))}
    monkeypatch.setattr(sparknet_worker, "_here", held)
    records = iter(range(3))
    sparknet_worker.forget(records)
    assert (held, closed, list(records)) == ({}, ["loader"], []), "unread records would cost the Python worker"
