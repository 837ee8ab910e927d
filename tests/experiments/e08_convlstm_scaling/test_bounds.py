"""What an infinitely fast link would allow, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fake_scaling import COSTS
from lockstep.experiments.e08_convlstm_scaling.bounds import (
    INFINITE,
    Reading,
    bound,
    bounds_table,
    least_batch,
    least_rate,
    readings,
    times,
)
from lockstep.predict.link_model import AlphaBeta

MODEL = COSTS["convlstm"]
SHARED, EACH = Reading(32), Reading(32, per_worker=True)


def test_a_step_that_is_shared_out_keeps_its_fixed_seconds() -> None:
    """8 images for each of 4 workers, and 2 for the busiest of 31."""
    few, many = (MODEL.fixed_seconds + images * MODEL.image_seconds for images in (8, 2))
    assert times(MODEL, SHARED, 4, 31) == pytest.approx(few / many)
    free = replace(MODEL, fixed_seconds=0.0)
    assert times(free, Reading(31 * 4), 4, 31) == pytest.approx(31 / 4), "the ideal"


def test_a_batch_for_each_worker_scales_with_the_workers_on_such_a_link() -> None:
    assert times(MODEL, EACH, 4, 31) == pytest.approx(31 / 4)
    slow = AlphaBeta(0.0, 8e-9)
    assert times(MODEL, EACH, 4, 31, "parameter_server", slow) < times(MODEL, EACH, 4, 31, "allreduce", slow) < 31 / 4


def test_a_bound_holds_what_other_draws_and_other_machines_would_say() -> None:
    draws = [replace(MODEL, fixed_seconds=factor * MODEL.fixed_seconds) for factor in (0.9, 1.0, 1.1)]
    found = bound(MODEL, draws, SHARED, 4, 31)
    assert found.low < found.value < found.high < found.kindest
    assert found.kindest == pytest.approx(times(replace(MODEL, fixed_seconds=MODEL.fixed_seconds / 2), SHARED, 4, 31))
    assert found.allows(found.kindest) and not found.allows(1.2 * found.kindest)


def test_from_some_batch_and_some_link_on_a_number_is_possible() -> None:
    batch = least_batch(MODEL, 7.01, 4, 31)
    assert batch is not None and 32 < batch < 5856
    assert times(MODEL, Reading(batch), 4, 31) >= 0.9 * 7.01
    assert least_batch(MODEL, 9.0, 4, 31) is None and least_batch(MODEL, 1.0, 4, 31) == 32
    served, together = (least_rate(MODEL, EACH, 7.01, 4, 31, sync) for sync in ("parameter_server", "allreduce"))
    assert served is not None and together is not None and served > together
    assert times(MODEL, EACH, 4, 31, "parameter_server", AlphaBeta(0.0, 8 / served)) >= 0.9 * 7.01
    assert least_rate(MODEL, SHARED, 7.01, 4, 31, "allreduce") is None


def test_every_number_stands_with_every_reading() -> None:
    table = bounds_table(MODEL, [MODEL], [("5 to 32 nodes", 7.01, 4, 31), ("five", 6.59, 1, 5)], 5856)
    assert len(table) == 2 * len(readings()) and set(table["batch"]) == {str(each) for each in readings()}
    assert table.groupby("what")["possible"].any().to_dict() == {"5 to 32 nodes": True, "five": False}
    assert (table["modelled_bound"] <= table["many"] / table["few"] + 1e-9).all() and INFINITE.seconds(2, 1e9) == 0
