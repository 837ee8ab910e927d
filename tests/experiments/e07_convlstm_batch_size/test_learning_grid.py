"""The grid of notebook 07: a batch is split, never grown, and every cell is one that can run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lockstep.engine.job import JobError
from lockstep.experiments.e07_convlstm_batch_size import EXPERIMENT
from lockstep.experiments.e07_convlstm_batch_size.comparisons import comparisons, seeds_of
from lockstep.experiments.e07_convlstm_batch_size.grid import (
    ablation_cells,
    accuracy_cells,
    at_most,
    candidate_cells,
    finalists_of,
    paired_cells,
    price_cells,
    speed_cells,
)
from lockstep.experiments.experiment import Parameters
from lockstep.experiments.fixed_batch import in_memory_format, trained
from lockstep.experiments.parameters import read_parameters

CASE = "Pneumonia"
SETTINGS = {"plain": {}, "norm": {"batch_norm": True}, "stop": {"early_stopping_epochs": 3, "epochs": 30}}


def test_workers_share_the_batch_and_stages_do_not() -> None:
    job = trained("processes", "learning", use_case=CASE, global_batch_size=32, workers=4, epochs=1, scored_on="test")
    assert (job.global_batch_size, job.per_worker_batch_size, job.workers) == (32, 8, 4)
    job = trained("gpipe", "learning", use_case=CASE, global_batch_size=32, epochs=1, scored_on="test")
    assert (job.global_batch_size, job.per_worker_batch_size, job.replicas) == (32, 32, 1)
    job = trained("sequential", "speed", use_case=CASE, workers=1, global_batch_size=64)
    assert (job.global_batch_size, job.per_worker_batch_size, job.workers) == (64, 64, 1)


def chosen(**changed: Any) -> Parameters:
    given: dict[str, Any] = dict(use_cases=[CASE], further=[], networks=["cnn"], epochs=2, ways={"cnn": {}})
    given |= dict(linear_batch_sizes=[], rate_warmup_epochs=1, updates=0, updates_batch_sizes=[])
    return Parameters(**given | dict(tensorflow_batch_sizes=[]) | changed)


def test_batch_sizes_are_trained_at_equal_epochs_and_at_equal_updates() -> None:
    jobs = accuracy_cells(chosen(
        ways={"cnn": {"processes": [16, 512], "gpipe": [32]}}, epochs=10, linear_batch_sizes=[512],
        rate_warmup_epochs=2, updates=40, updates_batch_sizes=[16], tensorflow_batch_sizes=[32],
    ))  # fmt: skip
    found = [(job.strategy, job.framework, job.global_batch_size, job.epochs, job.updates) for job in jobs]
    assert found == [
        ("processes", "torch", 16, 10, 0), ("processes", "torch", 512, 10, 0), ("gpipe", "torch", 32, 10, 0),
        ("processes", "torch", 512, 10, 0), ("processes", "torch", 16, 0, 40), ("processes", "tensorflow", 32, 10, 0),
    ]  # fmt: skip
    rules = [(job.learning_rate_rule, job.rate_warmup_epochs) for job in jobs]
    assert rules[3] == ("linear", 2) and set(rules[:3] + rules[4:]) == {("constant", 0)}
    assert {job.scored_on for job in jobs} == {"test"} and {job.network for job in jobs} == {"cnn"}


def test_finalists_are_trained_again_on_all_images_and_flagged() -> None:
    jobs = candidate_cells(CASE, "cnn", SETTINGS, ["plain"], way="processes", epochs=10)
    assert [(job.experiment, job.scored_on, job.selected, job.epochs) for job in jobs] == [
        ("candidates", "held_out", False, 10), ("selected", "test", True, 10),
        ("candidates", "held_out", False, 10),
        ("candidates", "held_out", False, 30),
    ]  # fmt: skip
    stopped = candidate_cells(CASE, "cnn", SETTINGS, ["stop"], way="processes", epochs=10)[-1]
    assert (stopped.experiment, stopped.scored_on, stopped.early_stopping_epochs) == ("selected", "validation", 3)
    both = candidate_cells(CASE, "cnn", SETTINGS, ["plain", "stop"], way="processes", epochs=10)
    assert [job.early_stopping_epochs for job in both if job.selected] == [0, 3]


@pytest.mark.parametrize(
    ("finalists", "message"),
    [
        ({"cnn": ["best"]}, "finalist 'best' of cnn is no candidate; there are: plain, norm, stop"),
        ({"cnn": "plain"}, "finalists has 'plain' for 'cnn'; give a list of candidates: plain, norm, stop"),
        ({"cnn": []}, r"finalists has \[\] for 'cnn'"),
        ({"convlstm": ["plain"]}, "finalists has None for 'cnn'"),
    ],
)
def test_finalists_that_are_no_list_of_candidates_are_refused(finalists: dict[str, Any], message: str) -> None:
    """A name in place of a list was read letter by letter: KeyError: 'p'."""
    with pytest.raises(JobError, match=message):
        finalists_of(SETTINGS, finalists, "cnn")
    with pytest.raises(JobError, match="'plain' for 'cnn'; give a list"):
        candidate_cells(CASE, "cnn", SETTINGS, "plain", way="processes", epochs=10)
    assert list(finalists_of(SETTINGS, {"cnn": ["stop", "plain"]}, "cnn")) == ["stop", "plain"]


def test_further_use_cases_have_all_ways_and_the_others_the_first() -> None:
    both: dict[str, Any] = dict(use_cases=[CASE, "LeafDisease"], linear_batch_sizes=[32])
    both |= dict(ways={"cnn": {"processes": [16, 32], "gpipe": [32]}})
    jobs = accuracy_cells(chosen(**both, further=[CASE]))
    found = {name: [job.strategy for job in jobs if job.use_case == name] for name in (CASE, "LeafDisease")}
    assert found == {CASE: ["processes", "processes", "gpipe", "processes"], "LeafDisease": ["processes"] * 2}
    alike = accuracy_cells(chosen(**both))
    assert [job.use_case for job in alike] == [CASE] * 4 + ["LeafDisease"] * 4, "none named: all"
    with pytest.raises(JobError, match=r"further=\['FaceMask'\]: \['FaceMask'\] are not among the use cases"):
        accuracy_cells(chosen(further=["FaceMask"]))
    with pytest.raises(JobError, match="ways has none of 'convlstm', only of: cnn"):
        accuracy_cells(chosen(networks=["convlstm"]))


def test_batch_normalisation_is_trained_by_one_worker() -> None:
    """Several workers normalise by their own shares, so theirs would be another setting."""
    jobs = candidate_cells(CASE, "cnn", SETTINGS, ["norm"], way="processes", epochs=10)
    assert {job.strategy for job in jobs if job.batch_norm} == {"sequential"}
    assert {job.strategy for job in jobs if not job.batch_norm} == {"processes"}
    assert all(job.synchronous for job in jobs)


def test_pairs_differ_in_how_they_are_spread_alone() -> None:
    one, two, four, stages = paired_cells(CASE, "cnn", {"processes": [2, 4], "gpipe": [2]}, setting={}, epochs=3)
    assert [job.workers for job in (one, two, four, stages)] == [1, 2, 4, 2] and stages.model_parallel == "pipeline"
    assert {(job.global_batch_size, job.epochs, job.scored_on) for job in (one, two, four, stages)} == {(32, 3, "test")}
    assert paired_cells(CASE, "cnn", {}, setting=SETTINGS["stop"], epochs=3)[0].scored_on == "validation"


def test_every_pooling_meets_every_dropout() -> None:
    jobs = ablation_cells(CASE, "cnn", ["max", "none"], [0, 0.5], way="processes", epochs=2, images=400)
    assert [(job.pooling, job.dropout) for job in jobs] == [("max", 0), ("max", 0.5), ("none", 0), ("none", 0.5)]
    assert {(job.images, job.epochs) for job in jobs} == {(400, 2)}
    jobs = ablation_cells(CASE, "convlstm", ["max", "none"], [0, 0.5], way="processes", epochs=2)
    assert {job.pooling for job in jobs} == {"max"}, "an LSTM does not read 1444 positions"


def test_timed_cells_have_a_pair_and_as_many_images_whatever_the_batch() -> None:
    names = ["processes", "allreduce", "parameter_server", "algorithm_1", "gpipe"]
    jobs = speed_cells(CASE, "cnn", [128, 32], names, images=512, tensorflow=["allreduce"])
    pairs = [(job.framework, job.global_batch_size) for job in jobs if job.variant == "b"]
    assert pairs == [("torch", 32), ("torch", 128)], "one worker's and, at the largest batch, one of two workers"
    assert [job.strategy for job in jobs if job.variant == "b"] == ["sequential", "processes"]
    more = speed_cells(CASE, "cnn", [512, 128, 32], names, images=512, tensorflow=["allreduce"])
    assert {job for job in jobs if job.variant == "b"} <= {*more}, "a batch more leaves the pairs that are stored"
    assert {job.steps * job.global_batch_size for job in jobs} == {512} and {job.input for job in jobs} == {"memory"}
    assert min(job.warmup_steps for job in jobs) == 4, "the third step still waited for fresh pages"
    launchers = {job.strategy: job.launcher for job in jobs}
    assert launchers == {"sequential": "threads", "processes": "processes"} | dict.fromkeys(names[1:], "engines")
    (rare,) = [
        job
        for job in speed_cells(CASE, "cnn", [512], ["algorithm_1"], images=1024)
        if (job.workers, job.variant) == (2, "a")
    ]
    assert (rare.steps, rare.exchange_every, rare.warmup_steps) == (2, 2, 4), "two steps were all its warm-up"
    every = {job.exchange_every for job in jobs if job.strategy == "algorithm_1"}
    assert every == {16, 4}, "its measured steps hold their share of exchanges"
    assert speed_cells(CASE, "cnn", [512], [], images=64)[0].steps == 2, "at least two steps"
    assert not [job for job in speed_cells(CASE, "cnn", [32], ["gpipe"]) if job.framework == "tensorflow"]


def test_a_price_is_of_one_thing_at_a_time() -> None:
    dropout, penalty = price_cells(CASE, 32, dropout=0.25, weight_decay=1e-4)
    assert (dropout.dropout, dropout.weight_decay) == (0.25, 0) and (penalty.dropout, penalty.weight_decay) == (0, 1e-4)
    assert [job.strategy for job in price_cells(CASE, 32, dropout=0.0, weight_decay=1e-4)] == ["sequential"]


def test_a_memory_format_is_for_torch() -> None:
    jobs = speed_cells(CASE, "cnn", [32], ["processes", "gpipe"], tensorflow=["allreduce"])
    kept = {(job.strategy, job.framework): job.memory_format for job in in_memory_format(jobs, "channels_last")}
    assert kept == {
        ("sequential", "torch"): "channels_last", ("processes", "torch"): "channels_last",
        ("gpipe", "torch"): "channels_last", ("sequential", "tensorflow"): "contiguous",
        ("allreduce", "tensorflow"): "contiguous",
    }  # fmt: skip


def test_sets_are_cut_to_a_size_and_smaller_ones_stay() -> None:
    jobs = speed_cells(CASE, "cnn", [32], ["processes"])
    jobs += ablation_cells(CASE, "cnn", ["max"], [0.0], way="processes", epochs=1, images=400)
    assert {job.images for job in at_most(2000, jobs)} == {2000, 400}
    assert {job.images for job in at_most(0, jobs)} == {0, 400}


def test_a_strategy_that_does_not_exist_is_refused() -> None:
    with pytest.raises(JobError, match="strategy='gossip_pipe' does not exist"):
        trained("gossip_pipe", "speed", use_case=CASE)


def test_seeds_are_as_many_as_seconds_are_enough_for() -> None:
    shared: dict[str, Any] = {"use_case": CASE, "images": 2000, "scored_on": "test"}
    plain = trained("processes", "learning", network="convlstm", epochs=10, **shared)
    assert seeds_of(plain) == 20, "its difference to the CNN is judged within 2 points"
    assert seeds_of(trained("processes", "learning", updates=40, **shared)) == 20
    for name in ("gpipe", "algorithm_1_epochwise"):
        published = trained(name, "learning", network="convlstm", epochs=10, **shared)
        assert seeds_of(published) == 20, "a published accuracy is held against it, within 2 points"
        assert seeds_of(trained(name, "learning", epochs=10, **shared)) == 12, "a CNN stands beside no number"
    for experiment, epochs in (("selected", 30), ("paired", 3), ("ablation", 10)):
        assert seeds_of(trained("processes", experiment, epochs=epochs, **shared)) == 12, "a claim is judged by it"
    assert seeds_of(trained("processes", "candidates", epochs=30, **shared)) == 8
    assert seeds_of(trained("sequential", "speed", use_case=CASE, workers=1)) == 0


def test_the_papers_ways_and_the_convlstm_over_the_cnn_are_headlines(root: Path) -> None:
    parameters = read_parameters(root / "notebooks" / f"{EXPERIMENT.name}.ipynb")
    jobs = EXPERIMENT.grid(Parameters(**{name: each.default for name, each in parameters.items()}))
    found = comparisons(jobs)
    assert len(set(jobs)) == len(jobs) and {place for one in found for place in one.cells} == set(range(len(jobs)))
    first = [jobs[one.cells[0]] for one in found if one.headline]
    learnt = {job.strategy for job in first if job.experiment == "learning"}
    assert learnt == {"processes", "algorithm_1", "algorithm_1_best", "algorithm_1_epochwise"}
    pairs = [one.cells for one in found if one.headline and not one.rounds]
    over = [(jobs[above].network, jobs[under].network) for above, under in pairs]
    assert set(over) == {("convlstm", "cnn")}
    assert all(job.warmup_steps >= 3 for job in jobs if job.experiment == "speed")


@pytest.mark.parametrize("name", ["ablation", "heads", "prices", "profiled"])
def test_a_parameter_without_its_parts_is_refused_by_name(name: str, root: Path) -> None:
    """`-p ablation={}` ended in a KeyError, `-p prices={}` in a TypeError."""
    notebook = root / "notebooks" / f"{EXPERIMENT.name}.ipynb"
    values = {each.name: each.default for each in read_parameters(notebook).values()} | {name: {}}
    assert EXPERIMENT.grid is not None
    with pytest.raises(JobError, match=rf"^{name}=\{{\}} lacks '\w+'; give it"):
        EXPERIMENT.grid(Parameters(**values))
