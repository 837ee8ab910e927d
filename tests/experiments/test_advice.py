"""The README's table of strategies: each need with the strategy that leads in the records, and what it gave."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fake_distribution
import fake_pipelines
import lockstep
from lockstep.analysis.confidence import Estimate
from lockstep.analysis.statistics import ratio_with_interval
from lockstep.analysis.stored import Stored, no_records
from lockstep.analysis.targets import Reading, Target
from lockstep.engine.data import Arrays
from lockstep.engine.own.asked import TrainingAsked
from lockstep.experiments import advice
from lockstep.experiments.advice import ADVICE, Advice, advice_table
from lockstep.experiments.catalogue import Notebook
from lockstep.experiments.e03_pipelined_model_parallelism.stage_tables import largest_table
from lockstep.experiments.e06_spark_distribution.tables import variant_table
from lockstep.experiments.e11_straggler_mitigation.contenders import NEVER_WAIT, OURS, WAIT
from lockstep.experiments.e11_straggler_mitigation.learning import over
from lockstep.experiments.e11_straggler_mitigation.slow_nodes import rival_ratio, rivals_table
from lockstep.experiments.registry import experiment
from lockstep.experiments.report import Answered
from stored_reference import stored_reference

NOTEBOOK = "02_threads_vs_processes"
FIELDS = ("sync", "launcher", "workers", "threads_per_worker", "epochs", "precision", "device", "seed", "checkpoint")
FIELDS += ("resume", "on_nan")


def row(need: str, target: str | Callable[[Stored], str]) -> Advice:
    return Advice(need, f"`{target if isinstance(target, str) else 'read'}`", "02", target, "times as fast")


def table(monkeypatch: pytest.MonkeyPatch, rows: list[Advice], **ratios: Estimate | None) -> str:
    """The table of these rows where the targets of notebook 02 read these numbers."""

    def reads(ratio: Estimate | None) -> Callable[[Stored], Reading]:
        return lambda stored: Reading(ratio, "" if ratio else "not measured yet")

    targets = [Target(name, 1.0, reads(ratio)) for name, ratio in ratios.items()]
    stored: Any = no_records()
    stored.records.loc[0] = 0  # nothing is read of it, but there is a row
    found = Answered(Notebook(NOTEBOOK), lambda: stored, [], targets)
    monkeypatch.setattr(advice, "ADVICE", tuple(rows))
    monkeypatch.setattr(advice, "read_all", lambda root: [found])
    return advice_table(Path())


def test_of_two_ways_for_one_need_the_one_that_leads_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row("cores", "a"), row("cores", "b"), row("data", "a")]
    slow, fast = Estimate(1.5, 1.4, 1.6, 5), Estimate(1.9, 1.8, 2.0, 5)
    text = table(monkeypatch, rows, a=slow, b=fast)
    assert text.count("| cores |") == 1 and "| cores | `b` | 1.9 [1.8, 2] times as fast (" in text
    assert "| cores | `a` | 1.9 [1.8, 2]" in table(monkeypatch, rows, a=fast, b=slow)
    seldom = Estimate(3.0, 0.0, float("inf"), 1)
    assert "| cores | `a` | 1.5 [" in table(monkeypatch, rows, a=slow, b=seldom), "no interval leads nothing"
    assert "| cores | `a` | not measured yet (" in table(monkeypatch, rows, a=None, b=None)


def test_what_may_be_no_gain_is_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row("cores", "a")]
    assert "[0.9, 1.3] times as fast (may be no gain) (" in table(monkeypatch, rows, a=Estimate(1.1, 0.9, 1.3, 5))
    assert "may be no gain" not in table(monkeypatch, rows, a=Estimate(1.1, 1.01, 1.3, 5))
    wide = table(monkeypatch, rows, a=Estimate(2.5, 0.001, 4e6, 5))
    assert "| 2.5 times as fast (no interval yet: it may be no gain) (" in wide and "e+06" not in wide


def test_a_number_whose_sessions_differ_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: the finding that the row points at said so, and the row did not."""
    own = ((0, Estimate(1.4, 1.35, 1.45, 5)), (2, Estimate(1.6, 1.55, 1.65, 5)))
    differing = replace(Estimate(1.5, 1.2, 1.9, 10), apart=own)
    assert "| 1.5 [1.2, 1.9] (sessions differ) times as fast (" in table(monkeypatch, [row("cores", "a")], a=differing)


def test_a_row_may_read_its_number_from_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "| 1.48 times as fast (" in table(monkeypatch, [row("room", lambda stored: "1.48")])
    assert "| not measured yet (" in table(monkeypatch, [row("room", lambda stored: "")])
    with pytest.raises(ValueError, match="no target 'nothing'"):
        table(monkeypatch, [row("cores", "nothing")])


def test_several_machines_are_told_by_what_links_measured() -> None:
    (row,) = [each for each in ADVICE if each.need == "several machines"]
    assert callable(row.target) and row.target(no_records()) == ""
    found = re.fullmatch(r"([\d.]+) \[[\d.]+, [\d.]+\]", row.target(Stored(fake_distribution.records())))
    assert found is not None and float(found[1]) == pytest.approx(0.7, rel=0.02)


def beside(need: str, stored: Stored) -> str:
    (row,) = [each for each in ADVICE if each.need == need]
    assert row.beside is not None and row.beside(no_records()) == ""
    return row.beside(stored)


def test_several_machines_are_told_of_a_network_that_loses_too(root: Path) -> None:
    """Seen: 1.84 times alone, while AlexNet on the same hosts and link trains half as fast as one core."""
    records = stored_reference(root / "results" / "reference" / "05_mpi_distribution")
    shared = {"experiment": "timeline", "use_case": "SimpleBig", "variant": "a"}
    sides = [{**shared, "strategy": name} for name in ("mpi_allreduce", "sequential")]
    ratio = ratio_with_interval(records.shown.records, sides[0], sides[1], "images_per_second")
    assert beside("several machines", records) == f"AlexNet with eight images per worker: {ratio} times"


def test_a_spark_cluster_is_advised_what_is_faster_than_one_core_there(root: Path) -> None:
    """Seen: Spark's own loop first, at 0.834 times one core's speed, for data that were in files, not in Spark."""
    stored = stored_reference(root / "results" / "reference" / "06_spark_distribution")
    (row,) = [each for each in ADVICE if "Spark" in each.need]
    table = variant_table(stored.shown.records)
    (barrier,) = table[(table["strategy"] == "spark_shared_memory") & (table["variant"] == "a")].to_dict("records")
    assert callable(row.target) and "barrier mode" in row.strategy and "one tuned core" in row.means
    assert row.target(stored).startswith(f"{barrier['speedup']:.3g} [{barrier['low']:.3g}, ")
    shared = {"experiment": "few", "use_case": "Pneumonia", "variant": "a"}
    sides = [{**shared, "strategy": "sparknet_tau", "workers": 2}, {**shared, "strategy": "sequential", "workers": 1}]
    ratio = ratio_with_interval(stored.shown.records, *sides, "images_per_second")
    own_loop = f"Spark's own loop on files, with seldom exchanges, {ratio} times, the 50x50 network"
    assert beside(row.need, stored) == own_loop


def test_no_policy_is_advised_where_another_one_is_faster(root: Path) -> None:
    """Seen: the deadline first, beside numbers by which asynchronous training is faster without momentum, and waiting
    for all with it."""
    records = stored_reference(root / "results" / "reference" / "11_straggler_mitigation")
    plain, momentum = (each for each in ADVICE if each.need.startswith("workers that fall behind"))
    never, ours = (over(records.shown, name, WAIT) for name in (NEVER_WAIT, OURS))
    assert callable(plain.target) and plain.target(records) == str(never) and 'policy="asynchronous"' in plain.strategy
    assert beside(plain.need, records) == f"updating at a deadline, {ours} times"
    assert over(records.shown, NEVER_WAIT, OURS).high < 1, "else the deadline may stand first"
    assert callable(momentum.target) and "the default" in momentum.strategy
    text = momentum.target(records)
    for workers in sorted(set(rivals_table(records)["workers"])):
        ratio = rival_ratio(records, workers, WAIT, OURS)
        assert (f"{ratio} times ({workers} workers)" in text) == (ratio.high < 1 or ratio.low > 1), "on either side"
        told_apart = not re.search(rf"no difference shown with [^:]*\b{workers}\b", text)
        assert told_apart == (ratio.high < 1 or ratio.low > 1)


def test_what_is_beside_a_number_stands_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    one = replace(row("hosts", lambda stored: "0.7 [0.3, 2]"), beside=lambda stored: "AlexNet: 0.5 times")
    assert "| 0.7 [0.3, 2] times as fast (may be no gain); AlexNet: 0.5 times (" in table(monkeypatch, [one])
    assert "as fast (may be no gain) (" in table(monkeypatch, [replace(one, beside=lambda stored: "")])


def test_every_row_states_its_base() -> None:
    bases = ("times one tuned core's speed", "the largest that fits one worker", "waiting for all's time")
    for each in ADVICE:
        assert any(base in each.means for base in bases), each.need


def test_room_is_that_of_two_ranks() -> None:
    (row,) = [each for each in ADVICE if each.need == "a model too large for one worker"]
    assert callable(row.target) and row.target(no_records()) == ""
    stored = Stored(fake_pipelines.records(), fake_pipelines.tables())
    table = largest_table(stored.table("stages"))
    own = table[(table["pipeline_ranks"] == 2) & (table["schedule"] == "interleaved_1f1b")]
    counted, peaks = own["times"].max(), own["at_least"].max()
    assert row.target(stored) == f"{counted:.3g}" and len(set(table["pipeline_ranks"])) > 1
    stages = stored.table("stages")
    twice = stages.assign(peak_bytes=2 * stages["peak_bytes"])
    full = Stored(fake_pipelines.records(), fake_pipelines.tables() | {"stages": twice})
    assert row.target(full) == f"{peaks / 2:.3g} to {counted:.3g}", "ranks held more than was counted"


def test_the_room_is_that_of_the_schedule_which_the_command_names() -> None:
    """Bug: it gave interleaved 1F1B's number beside a command that takes 1F1B."""
    (row,) = [each for each in ADVICE if each.need == "a model too large for one worker"]
    assert 'schedule="interleaved_1f1b", stages_per_rank=2' in row.strategy and callable(row.target)
    tables = fake_pipelines.tables()
    stages = tables["stages"]
    others = tables | {"stages": stages[stages["schedule"] != "interleaved_1f1b"]}
    assert row.target(Stored(fake_pipelines.records(), others)) == ""


def test_every_row_names_a_target_of_its_notebook() -> None:
    for each in ADVICE:
        names = [target.name for target in experiment(each.notebook).targets]
        assert not isinstance(each.target, str) or each.target in names, each.need


def test_what_a_reader_copies_is_a_way_to_train(root: Path) -> None:
    """Bug: policy="deadline" stood there without the one server that it needs, which is refused."""
    page = (root / "docs" / "stragglers.md").read_text(encoding="utf-8")
    texts = [re.search(r"lockstep.train\(model, data, (.+)\)", page)[1]]  # type: ignore[index]
    texts += [found[1] for each in ADVICE if (found := re.match(r"`(\w+=[^`<]+)`", each.strategy))]
    assert len(texts) >= 4
    images = Arrays(np.zeros((64, 4), np.float32), np.arange(64) % 2)
    usual = {name: each.default for name, each in inspect.signature(lockstep.train).parameters.items()}
    for text in texts:
        given = {"launcher": "processes", "workers": 2, **eval(f"dict({text})")}
        fields = {name: given.pop(name, usual[name]) for name in FIELDS}
        assert TrainingAsked(**fields, global_batch_size=64, options=given).job(images).workers == fields["workers"]
