"""What an infinitely fast link would allow, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
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
from lockstep.experiments.e08_convlstm_scaling.verdicts import _link_text
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
    found = bound(MODEL, draws, 12, SHARED, 4, 31)
    kindest = times(replace(MODEL, fixed_seconds=MODEL.fixed_seconds / 2), SHARED, 4, 31)
    assert found.modelled.low < found.modelled.value < found.modelled.high and found.kindest.value == kindest
    spread = np.std([math.log(times(each, SHARED, 4, 31)) for each in draws]) * math.sqrt(12 / 11)
    assert found.modelled.deviation == pytest.approx(spread * math.sqrt(12)), "the draws' spread is a standard error"
    assert found.allows(kindest) and not found.allows(1.2 * found.kindest.high)


def test_the_chance_of_a_bound_is_that_of_its_calibration() -> None:
    """A number just beyond the bound: the vaguer the calibration, the likelier it is wrong; few rounds allow all."""
    sure, vague = ([replace(MODEL, fixed_seconds=(1 + spread * sign) * MODEL.fixed_seconds) for sign in (-1, 1)]
                   for spread in (0.01, 0.1))  # fmt: skip
    kindest = bound(MODEL, sure, 12, SHARED, 4, 31).kindest.value
    number = 1.02 * kindest / 0.9
    assert number * 0.9 < bound(MODEL, sure, 12, SHARED, 4, 31).ideal
    chances = [bound(MODEL, draws, 12, SHARED, 4, 31).chance(number) for draws in (sure, vague)]
    assert 0 < chances[0] < 0.05 < chances[1]
    open_yet = bound(MODEL, vague, 12, SHARED, 4, 31)
    assert 1 < open_yet.rounds_more(number) < math.inf and open_yet.rounds_more(0.9 * kindest) == math.inf
    few = bound(MODEL, sure, 4, SHARED, 4, 31)
    assert few.allows(number) and few.chance(number) == 1.0
    assert not few.allows(100.0) and few.chance(100.0) == 0.0, "arithmetic needs no rounds"


def test_from_some_batch_and_some_link_on_a_number_is_possible() -> None:
    batch = least_batch(MODEL, 7.01, 4, 31)
    assert batch is not None and 32 < batch < 5856
    assert times(MODEL, Reading(batch), 4, 31) >= 0.9 * 7.01
    assert least_batch(MODEL, 9.0, 4, 31) is None and least_batch(MODEL, 1.0, 4, 31) == 32
    served, together = (least_rate(MODEL, EACH, 7.01, 4, 31, sync) for sync in ("parameter_server", "allreduce"))
    assert served is not None and together is not None and served > together
    assert times(MODEL, EACH, 4, 31, "parameter_server", AlphaBeta(0.0, 8 / served)) >= 0.9 * 7.01
    assert least_rate(MODEL, SHARED, 7.01, 4, 31, "allreduce") is None


def test_a_link_that_is_the_slowest_tried_is_no_threshold() -> None:
    """Seen: possible "from 100 kbit/s by all-reduce on", where no slower link had been tried."""
    one = bound(MODEL, [MODEL], 12, EACH, 4, 31)
    assert "at most 100 kbit/s by all-reduce on" in _link_text(MODEL, one, 0.1)
    assert "at most" not in _link_text(MODEL, one, 7.01)


def test_every_number_stands_with_every_reading() -> None:
    table = bounds_table(MODEL, [MODEL], 12, [("5 to 32 nodes", 7.01, 4, 31), ("five", 6.59, 1, 5)], 5856)
    assert len(table) == 2 * len(readings()) and set(table["batch"]) == {str(each) for each in readings()}
    told = table.groupby("what")["possible"].agg(set).to_dict()
    assert told == {"5 to 32 nodes": {"yes", "no"}, "five": {"no"}}
    assert (table["modelled_bound"] <= table["many"] / table["few"] + 1e-9).all() and INFINITE.seconds(2, 1e9) == 0


def test_what_the_model_forbids_is_not_possible_because_its_rounds_are_few() -> None:
    """Seen: "yes" beside a published 7.01, a modelled 3.71 and a kindest 4.61 of two rounds."""
    few, many = (bounds_table(MODEL, [MODEL], rounds, [("5 to 32 nodes", 7.01, 4, 31)], 5856) for rounds in (2, 12))
    assert few["ideal"].tolist() == many["ideal"].tolist()
    columns = few["possible"], many["possible"], few["ideal"], few["kindest"]
    for told, surely, ideal, kindest in zip(*columns, strict=True):
        expected = "no" if ideal < 0.9 * 7.01 else "yes" if kindest >= 0.9 * 7.01 else "undecided"
        assert (told, surely) == (expected, expected.replace("undecided", "no"))
    assert "undecided" in set(few["possible"])


def test_the_ends_of_a_bound_are_possible_ones() -> None:
    """Seen: ends below 1 and beyond the ideal, where draws of the rounds lie far apart."""
    draws = [replace(MODEL, fixed_seconds=factor * MODEL.fixed_seconds) for factor in (0.1, 1.0, 9.0)]
    wanted = [("5 to 32 nodes", 7.01, 4, 31)]
    table = bounds_table(MODEL, draws, 12, wanted, 5856)
    assert table["ideal"].tolist() == pytest.approx([8 / 2, 32 / 5, 1464 / 189, 31 / 4])
    assert (table["low"] >= 1).all() and (table["high"] <= table["ideal"]).all()
    assert (table["low"] <= table["modelled_bound"]).all() and table["low"].iloc[2] > 1
    assert str(bound(MODEL, draws, 12, SHARED, 4, 31)).split()[1:3] == ["[1,", "4]"]
    assert bounds_table(MODEL, draws, 2, wanted, 5856)[["low", "high"]].isna().all(axis=None), "no interval yet"
