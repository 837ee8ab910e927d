"""GPUs that are not there: bounds hold in every draw, and the model moves the way its causes do."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from lockstep.predict import gpu_memory, gpus
from lockstep.predict.networks import network

CASES = ("SimpleBig", "ComplexSmall")


def test_specifications_name_their_sources() -> None:
    known = gpus.specifications()
    assert len(known) >= 7 and (known["source"].str.len() > 0).all()
    assert known["tflops"].between(1, 20).all() and known["memory_gib"].between(8, 40).all()


def test_the_same_draws_each_time() -> None:
    assert np.array_equal(gpus.machines().batch, gpus.machines.__wrapped__().batch)
    other = gpus.machines(seed=1)
    for use_case in CASES:
        here, there = (gpus.range_of(gpus.data_parallel(use_case, 2, drawn)) for drawn in (gpus.machines(), other))
        assert (here.low, here.high) == pytest.approx((there.low, there.high), rel=0.05), (
            "the number of draws is enough"
        )


@pytest.mark.parametrize("use_case", CASES)
@pytest.mark.parametrize("count", [2, 4, 8])
def test_no_draw_gives_more_than_there_are_gpus(use_case: str, count: int) -> None:
    drawn = gpus.machines()
    assert gpus.data_parallel(use_case, count, drawn).max() <= count
    assert gpus.data_parallel(use_case, count, drawn, nodes=count).max() <= count
    assert gpus.pipeline(use_case, drawn).max() <= 2


def test_fewest_gpus() -> None:
    assert [gpus.fewest_gpus(value) for value in (0.5, 1.25, 2.0, 6.74, 8.01)] == [1, 2, 2, 7, 9]


def test_each_cause_moves_the_model_its_way() -> None:
    drawn = replace(gpus.machines(), overlaps=np.zeros(gpus.DRAWS, dtype=bool))
    base = gpus.data_parallel("SimpleBig", 2, drawn)
    assert (gpus.data_parallel("SimpleBig", 2, replace(drawn, batch=2 * drawn.batch)) > base).all()
    faster = replace(drawn, flops_per_second=2 * drawn.flops_per_second)
    assert (gpus.data_parallel("SimpleBig", 2, faster) < base).all(), "less computing hides less of the exchange"
    wide = replace(drawn, link_bytes_per_second=2 * drawn.link_bytes_per_second)
    assert (gpus.data_parallel("SimpleBig", 2, wide) > base).all()
    pieces = replace(drawn, micro_batches=2 * drawn.micro_batches)
    assert (gpus.pipeline("SimpleBig", pieces) > gpus.pipeline("SimpleBig", drawn)).all()


def test_a_step_by_hand() -> None:
    one = gpus.Machines(*(np.array([value]) for value in (1e12, 1e11, 1e10, 10.0, 4, False, False)))
    own = network("SimpleBig")
    step = own.training_flops * 10 / 1e12 + own.parameters * 20 / 1e11
    assert gpus.step_seconds("SimpleBig", one) == pytest.approx([step])
    assert gpus.data_parallel("SimpleBig", 2, one) == pytest.approx([2 * step / (step + own.gradient_bytes / 1e10)])
    through = replace(one, through_one=np.array([True]))
    slower = 2 * step / (step + 2 * own.gradient_bytes / 1e10)
    assert gpus.data_parallel("SimpleBig", 2, through) == pytest.approx([slower])


def test_the_batch_that_a_speedup_takes_gives_that_speedup() -> None:
    needed = gpus.fewest_images("SimpleBig", 4.0, 8)
    drawn = replace(gpus.machines(), overlaps=np.zeros(gpus.DRAWS, dtype=bool))
    at = gpus.data_parallel("SimpleBig", 8, replace(drawn, batch=np.full(gpus.DRAWS, needed.high)), nodes=8)
    assert (at >= 4.0).mean() == pytest.approx(0.975, abs=0.01)
    assert gpus.fewest_images("SimpleBig", 8.0, 8).low == math.inf, "nothing is left for the exchange"


def test_memory_grows_with_what_needs_it() -> None:
    low, high = gpu_memory.LOW, gpu_memory.HIGH
    for use_case in CASES:
        share = gpu_memory.whole(use_case)
        assert share.process_bytes(8, low) < share.process_bytes(16, low) < share.process_bytes(16, high)
        assert share.tensor_bytes(0, low) == 12 * network(use_case).parameters
        for end in (low, high):
            batch = share.largest_batch(11, 2, end)
            assert gpu_memory.processes_that_fit(use_case, 11, batch, end) == 2
            assert gpu_memory.processes_that_fit(use_case, 11, batch + 1, end) == 1
            alone, hybrid = gpu_memory.hybrid_batches(use_case, 11, 2, end)
            assert 0 < hybrid < alone
    assert gpu_memory.whole("ComplexSmall").largest_batch(1, 1, low) == 0
    assert gpu_memory.overflow_share("SimpleBig", low) <= gpu_memory.overflow_share("ComplexSmall", low)
    assert gpu_memory.overflow_share("ComplexSmall", high, 4) > gpu_memory.overflow_share("ComplexSmall", high, 2)
