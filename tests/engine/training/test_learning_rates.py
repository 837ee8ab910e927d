"""Learning without workers: lengths, rates, weights of classes, when to stop, and what a job may ask for."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tiny
from lockstep.engine.data.small import SmallImages
from lockstep.engine.data.sources import Arrays, Photos
from lockstep.engine.job import LEARNING, OF_LEARNING, Job, JobError
from lockstep.engine.sync import Plan
from lockstep.engine.training.epochs import Rate, unaugmented
from lockstep.engine.training.rates import plan_of, rate_factor, sample_weights, scheduled
from lockstep.engine.training.stopping import EarlyStopping

TRAINED: dict[str, Any] = {"epochs": 2, "scored_on": "validation"}


def test_the_defaults_are_those_of_a_job_from_before() -> None:
    job = Job()
    assert not job.learns and rate_factor(job, Plan(10, 5, 2)) is None
    assert set(OF_LEARNING) <= set(Job.__dataclass_fields__)
    assert "learning" in LEARNING


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dropout": 1.0}, "dropout=1.0 is not possible; give a number of at least 0 and below 1"),
        ({"dropout": True}, "dropout=True is not possible; give a number of at least 0"),
        ({"weight_decay": -0.1}, "weight_decay=-0.1 is not possible; give a number of at least 0"),
        ({"learning_rate": math.inf}, "learning_rate=inf is not possible"),
        ({"learning_rate": "0.1"}, "learning_rate='0.1' is not possible"),
        ({"batch_norm": 1}, "batch_norm=1 is neither True nor False"),
        ({"standardise": "yes"}, "standardise='yes' is neither True nor False"),
        ({"epochs": -1}, "epochs=-1 is not possible; give a whole number of at least 0"),
        ({"epochs": 2, "updates": 5}, "epochs=2 and updates=5 both say how long to train; give one of them"),
        ({"epochs": 2, "steps": 7}, "steps=7 does nothing with epochs=2, which says how long to train"),
        ({"updates": 9, "warmup_steps": 0}, "warmup_steps=0 does nothing with updates=9"),
        ({"epochs": 2, "input": "memory"}, "input='memory' with epochs=2 would keep every batch of every epoch"),
        (
            {"epochs": 1, "rate_warmup_epochs": 2},
            "rate_warmup_epochs=2 with epochs=1: the rate would never reach its full height; give at most 1",
        ),
        *(
            ({"experiment": name}, f"experiment='{name}' trains until something is learnt; give epochs or updates")
            for name in LEARNING
        ),
        ({"scored_on": "test"}, "scored_on='test' needs an end of training; give epochs or updates"),
        ({"epochs": 2, "early_stopping_epochs": 1}, "with scored_on='none': it looks at validation loss"),
        (
            {"updates": 9, "scored_on": "validation", "early_stopping_epochs": 1},
            "early_stopping_epochs=1 with updates=9: it counts epochs; give epochs instead of updates",
        ),
        ({"framework": "tensorflow", "precision": "bfloat16"}, "only 'float32' is possible"),
        (
            {"framework": "tensorflow", "sync": "ddp", "launcher": "processes"},
            "sync='ddp' with framework='tensorflow': it trains torch modules",
        ),
        (
            {"launcher": "spark_driver", "sync": "sparknet", "executor_data": "rdd", "epochs": 2},
            "epochs=2 is not built for sync='sparknet'",
        ),
        (
            {
                "model_parallel": "pipeline",
                "schedule": "gpipe",
                "partition": "balanced",
                "batch_norm": True,
                "workers": 2,
                "stages": 2,
                "launcher": "processes",
                "sync": "local",
            },
            "batch_norm=True with model_parallel='pipeline'",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(JobError) as caught:
        Job(**fields)
    assert message in str(caught.value)


def test_normalisation_by_shares_is_no_synchronous_sgd() -> None:
    one, two = (Job(workers=count, sync="allreduce", batch_norm=True) for count in (1, 2))
    assert one.synchronous and not two.synchronous
    assert any("not synchronous SGD" in caution for caution in two.cautions(2))


@pytest.mark.parametrize(
    ("fields", "whose"),
    [
        ({"launcher": "processes"}, None),
        ({"framework": "tensorflow"}, "TensorFlow's"),
        ({"workers": 4, "stages": 2, "model_parallel": "pipeline", "partition": "equal_layers"}, "the pipeline's"),
    ],
)
def test_an_overlap_that_hides_nothing_is_told(fields: dict[str, Any], whose: str | None) -> None:
    """It was recorded as an overlap, though these replicas tell of gradients only behind their backward pass."""
    job = Job.of("layerwise", **{"workers": 2, "launcher": "processes", "schedule": "gpipe" if "stages" in fields
                                 else "none", **fields})  # fmt: skip
    told = [caution for caution in job.cautions(8) if caution.startswith("overlap=True")]
    expected = f"overlap=True overlaps nothing: the exchange begins behind {whose} backward pass"
    assert told == ([expected] if whose else [])
    assert not [caution for caution in job.with_(overlap=False).cautions(8) if "overlap" in caution]


def test_a_label_names_network_and_framework_where_they_are_chosen() -> None:
    assert Job(network="convlstm", framework="tensorflow").label.startswith("SimpleBig convlstm tensorflow sequential")
    assert Job().label.startswith("SimpleBig sequential")


# --- how long ---


@pytest.mark.parametrize(
    ("fields", "steps"), [({"epochs": 3}, 15), ({"updates": 7}, 7), ({"steps": 4, "warmup_steps": 2}, 6)]
)
def test_a_job_lasts_for_epochs_updates_or_steps(fields: dict[str, Any], steps: int) -> None:
    """37 samples in batches of 8 are five steps an epoch."""
    assert plan_of(Job(global_batch_size=8, **fields), tiny.arrays()).steps == steps


# --- at which rate ---


def rates(steps: int, **fields: Any) -> list[float]:
    """What an SGD optimiser of rate 0.1 really steps with: 20 samples in batches of 4 are five steps an epoch."""
    job = Job(global_batch_size=4, updates=steps, **fields)
    plan = Plan(20, 4, steps)
    make = functools.partial(torch.optim.SGD, lr=0.1)
    leaf = nn.Parameter(torch.zeros(1))
    leaf.grad = torch.ones(1)
    optimiser, moved = scheduled(make, rate_factor(job, plan))([leaf]), []
    for _ in range(steps):
        before = leaf.item()
        optimiser.step()
        moved.append(before - leaf.item())
    told = Rate.of(make, rate_factor(job, plan))
    assert moved == pytest.approx([told.at(step) for step in range(steps)], abs=1e-6)
    return moved


def test_the_linear_rule_counts_from_a_batch_of_32() -> None:
    assert rates(2, learning_rate_rule="linear") == pytest.approx([0.1 * 4 / 32] * 2)


def test_the_rate_grows_in_the_warm_up_and_then_stays() -> None:
    assert rates(7, rate_warmup_epochs=1) == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1, 0.1, 0.1], abs=1e-6)


def test_the_rate_falls_to_zero_along_a_cosine() -> None:
    assert rates(4, learning_rate_decay="cosine") == pytest.approx(
        [0.1, 0.05 * (1 + math.sqrt(0.5)), 0.05, 0.05 * (1 - math.sqrt(0.5))], abs=1e-6
    )


def test_a_resumed_optimiser_goes_on_with_its_rate() -> None:
    """Its groups know how many steps it has made: a sync that restores its state restores the rate."""
    factor = rate_factor(Job(global_batch_size=4, rate_warmup_epochs=2, updates=10), Plan(20, 4, 10))
    make = scheduled(functools.partial(torch.optim.Adam, lr=1.0), factor)
    leaf = nn.Parameter(torch.zeros(3))
    leaf.grad = torch.ones(3)
    first, second = make([leaf]), make([leaf])
    for _ in range(4):
        first.step()
    second.load_state_dict(first.state_dict())
    second.step()
    assert second.param_groups[0]["lr"] == pytest.approx(0.5)


# --- on what, with which weight ---


def test_balanced_weights_make_classes_count_alike() -> None:
    """9 : 3 of 12 samples: 12 / (2 x 9) and 12 / (2 x 3); the class that does not occur is none of the two."""
    label = np.array([0] * 9 + [2] * 3)
    weights = sample_weights(label)
    assert weights[:9] == pytest.approx(np.full(9, 2 / 3)) and weights[9:] == pytest.approx(np.full(3, 2.0))
    assert weights.mean() == pytest.approx(1)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_weights_of_a_global_batch_sum_to_one(workers: int) -> None:
    images = np.zeros((11, 1, 2, 2), np.float32)
    data = Arrays(images, np.array([0] * 9 + [1] * 2))
    plan = plan_of(Job(global_batch_size=4, epochs=1, class_weights="balanced"), data)
    for step in range(plan.steps):
        shares = [plan.shares(step, rank, workers)[0] for rank in range(workers)]
        ids, weights = (
            np.concatenate([getattr(share, name) for share in shares]) for name in ("sample_ids", "weights")
        )
        assert weights.dtype == np.float32 and weights.sum() == pytest.approx(1)
        rare, common = weights[data.labels[ids] == 1], weights[data.labels[ids] == 0]
        if len(rare) and len(common):
            assert rare[0] / common[0] == pytest.approx(4.5)


def test_images_that_were_trained_on_are_scored_as_they_are() -> None:
    photos = Photos.of(("a", "b"), ("/a", "/b"), (["1.jpg", "2.jpg"], ["3.jpg"]), "real", augment=True)
    plain = unaugmented(photos)
    assert isinstance(plain, Photos) and not plain.augment
    assert [plain.path(number) for number in range(3)] == [photos.path(number) for number in range(3)]
    small = unaugmented(SmallImages.of(photos, 1, "shift"))
    assert isinstance(small, SmallImages) and (small.augment, len(small)) == ("none", 3)
    own = tiny.arrays()
    assert unaugmented(own) is own


# --- when to stop ---


def test_training_stops_after_so_many_epochs_without_a_lower_loss() -> None:
    stopping, told = EarlyStopping(2), []
    for loss in (0.9, 0.7, 0.8, 0.7, 0.6):
        told.append((stopping.improved(loss), stopping.over))
    assert told == [(True, False), (True, False), (False, False), (False, True), (True, False)]


def test_a_loss_that_is_no_number_is_no_improvement() -> None:
    stopping = EarlyStopping(1)
    assert not stopping.improved(float("nan")) and stopping.over


def test_without_patience_it_never_stops() -> None:
    stopping = EarlyStopping(0)
    for _ in range(5):
        stopping.improved(1.0)
    assert not stopping.over
