"""Draws belong to (seed, epoch, stream, sample, position) and to nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.engine.data.keyed import keyed_uniform, keyed_words
from lockstep.engine.mixing import GOLDEN, MULTIPLIER_1, MULTIPLIER_2, mix64, stream_key

WORDS = st.integers(0, 2**64 - 1)


def test_mix64_is_splitmix64() -> None:
    # The first three outputs of the reference implementation for seed 1234567.
    state, outputs = 1234567, []
    for _ in range(3):
        state = (state + GOLDEN) % 2**64
        outputs.append(mix64(state))
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@given(st.lists(WORDS, min_size=1, max_size=20))
def test_arrays_and_integers_are_mixed_alike(values: list[int]) -> None:
    before = np.array(values, dtype=np.uint64)
    mixed = mix64(before)
    assert mixed.tolist() == [mix64(value) for value in values]
    assert before.tolist() == values, "the argument must not change"


def to_signed(value: int) -> int:
    """The signed 64-bit integer with the same bits."""
    return value - (1 << 64) if value >> 63 else value


@given(WORDS)
def test_the_documented_rule_works_in_signed_arithmetic(value: int) -> None:
    with np.errstate(over="ignore"):
        word = np.array([to_signed(value)], dtype=np.int64)
        for shift, factor in ((30, MULTIPLIER_1), (27, MULTIPLIER_2), (31, None)):
            word = word ^ ((word >> shift) & np.int64((1 << (64 - shift)) - 1))
            word = word if factor is None else word * np.int64(to_signed(factor))
    assert int(word[0]) == to_signed(mix64(value))


@given(
    seed=st.integers(0, 2**40), epoch=st.integers(0, 1000), stream=st.integers(0, 2000), sample=st.integers(0, 2**40)
)
def test_a_draw_follows_the_documented_rule(seed: int, epoch: int, stream: int, sample: int) -> None:
    key = 0
    for value in (seed, epoch, stream, sample, 2):
        key = mix64(key + GOLDEN * (value + 1))
    assert int(keyed_words(stream_key(seed, epoch, stream), [sample], 3)[0, 2]) == key
    assert float(keyed_uniform(seed, epoch, [sample], stream, 3)[0, 2]) == (key >> 40) * 2.0**-24


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=30), st.randoms())
def test_a_sample_draws_the_same_whatever_stands_beside_it(ids: list[int], random: object) -> None:
    together = keyed_uniform(3, 1, ids, 7, 4)
    alone = np.concatenate([keyed_uniform(3, 1, [sample], 7, 4) for sample in ids])
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_array_equal(together[:, 0], keyed_uniform(3, 1, ids, 7))
    np.testing.assert_array_equal(together[:, :2], keyed_uniform(3, 1, ids, 7, 2))


def test_each_part_of_the_key_matters() -> None:
    ids = np.arange(100)
    base = keyed_uniform(1, 2, ids, 3)
    for other in (keyed_uniform(2, 2, ids, 3), keyed_uniform(1, 3, ids, 3), keyed_uniform(1, 2, ids, 4)):
        assert not np.array_equal(base, other)
    assert not np.array_equal(keyed_uniform(1, 2, ids, 3), keyed_uniform(2, 1, ids, 3))


def test_the_draws_are_uniform_and_uncorrelated() -> None:
    draws = keyed_uniform(0, 0, np.arange(2000), 0, 50)
    assert draws.dtype == np.float32
    assert draws.shape == (2000, 50)
    assert 0.0 <= draws.min() <= draws.max() < 1.0
    # 100 000 draws: ten cells of 10 000 ± 95; five deviations.
    assert np.abs(np.histogram(draws, 10, (0, 1))[0] - 10_000).max() < 475
    for a, b in ((draws[:-1], draws[1:]), (draws[:, :-1], draws[:, 1:])):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.016
    next_epoch = keyed_uniform(0, 1, np.arange(2000), 0, 50)
    assert abs(np.corrcoef(draws.ravel(), next_epoch.ravel())[0, 1]) < 0.016


@pytest.mark.parametrize("wrong", [{"seed": -1}, {"epoch": -2}, {"stream": -3}, {"length": -4}, {"seed": 1.5}])
def test_impossible_keys_are_refused(wrong: dict[str, int]) -> None:
    arguments = {"seed": 0, "epoch": 0, "stream": 0, "length": 1} | wrong
    ((name, value),) = wrong.items()
    with pytest.raises(ValueError, match=rf"{name}={value}.*give"):
        keyed_uniform(sample_ids=np.arange(3), **arguments)  # type: ignore[arg-type]
