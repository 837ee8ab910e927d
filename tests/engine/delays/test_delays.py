"""What all kinds of delays have in common: texts, one world for all who ask, and two equal ways to ask."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from lockstep.engine.delays import KINDS, Delays, canonical, make_delays
from lockstep.engine.options import JobError, options_of

TEXTS = (
    "none", "exponential:mean=1,shift=0.2", "exponential:seconds=0.3", "pareto:shape=1.5", "bimodal:share=0.3",
    "markov:enter=0.5,leave=1", "markov:seconds=0.02", "periodic:period=3", "periodic:seconds=0.01,share=0.9",
    "drift:seconds=0.3", "bad_node:at=30", "groups:size=3,leave=1", "credits:seconds=60", "decoding:enter=1,leave=1",
    "link:enter=1,leave=2", "gone:at=40",
)  # fmt: skip
CLOCK = 100.0


class Calls:
    """Random calls for `workers` workers, in random order."""

    def __init__(self, workers: int, count: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.workers = rng.integers(0, workers, count)
        self.tasks = rng.integers(0, 1000, count)
        self.starts = rng.uniform(0, CLOCK, count)
        self.works = np.where(rng.random(count) < 0.1, 0.0, rng.exponential(1.0, count))
        self.pieces = rng.integers(1, 5, count)
        self.piece = rng.integers(0, self.pieces)

    def one_by_one(self, delays: Delays, order: np.ndarray | None = None) -> np.ndarray:
        """[3, count]: ends of whole tasks, of pieces, and of messages."""
        columns = (self.workers, self.tasks, self.starts, self.works, self.piece, self.pieces)
        rows = list(zip(*(column.tolist() for column in columns), strict=True))
        found = np.empty((3, len(rows)))
        for index in range(len(rows)) if order is None else order:
            *call, piece, pieces = rows[index]
            found[:, index] = delays.end(*call), delays.end(*call, piece, pieces), delays.message_end(*call)
        return found

    def together(self, delays: Delays) -> np.ndarray:
        columns = (self.workers, self.tasks, self.starts, self.works)
        return np.stack([
            delays.ends(*columns), delays.ends(*columns, self.piece, self.pieces), delays.message_ends(*columns)
        ])  # fmt: skip


def test_every_kind_is_tested() -> None:
    assert {text.partition(":")[0] for text in TEXTS} | {"trace"} == set(KINDS)
    assert all(kind.family in ("states", "pauses", "none") and kind.__doc__ for kind in KINDS.values())
    assert all(option.help for kind in KINDS.values() for option in options_of(kind.options_kind).values())


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("workers", [1, 2, 3, 7, 64])
def test_one_by_one_and_together_agree_to_the_bit(text: str, workers: int) -> None:
    calls = Calls(workers, 150, seed=workers)
    expected = calls.one_by_one(make_delays(text, workers, seed=3))
    np.testing.assert_array_equal(calls.together(make_delays(text, workers, seed=3)), expected)
    mixed = make_delays(text, workers, seed=3)  # an object that was asked in both ways, in any order
    first = calls.together(mixed)
    np.testing.assert_array_equal(calls.one_by_one(mixed), expected)
    np.testing.assert_array_equal(calls.together(mixed), first)


@pytest.mark.parametrize("text", TEXTS)
def test_neither_order_nor_the_number_of_workers_matters(text: str) -> None:
    calls = Calls(3, 150, seed=1)
    expected = calls.one_by_one(make_delays(text, 3, seed=3))
    order = np.random.default_rng(2).permutation(150)
    for workers in (3, 4, 64):
        np.testing.assert_array_equal(calls.one_by_one(make_delays(text, workers, seed=3), order), expected)
    for worker in range(3):  # each worker asked for alone, in a process of its own
        own = calls.one_by_one(make_delays(text, 3, seed=3), np.flatnonzero(calls.workers == worker))
        np.testing.assert_array_equal(own[:, calls.workers == worker], expected[:, calls.workers == worker])


@pytest.mark.parametrize("text", TEXTS)
def test_arrays_are_broadcast(text: str) -> None:
    delays = make_delays(text, 5, seed=0)
    workers, tasks = np.arange(5), np.arange(4)[:, None]
    starts = np.linspace(0, CLOCK, 20).reshape(4, 5)
    found = delays.ends(workers, tasks, starts, 0.7)
    assert found.shape == (4, 5)
    expected = [[delays.end(w, t, float(starts[t, w]), 0.7) for w in range(5)] for t in range(4)]
    np.testing.assert_array_equal(found, expected)
    assert delays.ends(2, tasks[:, 0], 1.0, 0.5).shape == (4,)
    assert delays.ends(2, 3, 1.0, 0.5) == delays.end(2, 3, 1.0, 0.5)
    assert delays.ends([], 3, 1.0, 0.5).shape == (0,)


@pytest.mark.parametrize("text", [text for text in TEXTS if KINDS[text.partition(":")[0]].family != "none"])
def test_work_takes_at_least_its_time_and_another_seed_is_another_world(text: str) -> None:
    calls = Calls(64, 2000, seed=4)
    three, other = (calls.together(make_delays(text, 64, seed)) for seed in (3, 5))
    late = three - calls.starts - calls.works
    assert (late > -1e-9).all() and (late > 1e-3).any()
    assert (three != other).any() != text.startswith(("bad_node", "gone")), "only these say all in their options"


def test_no_delays_are_exactly_none() -> None:
    calls = Calls(3, 200, seed=0)
    expected = np.tile(calls.starts + calls.works, (3, 1))
    np.testing.assert_array_equal(calls.one_by_one(make_delays("none", 3, 0)), expected)
    np.testing.assert_array_equal(calls.together(make_delays("none", 3, 0)), expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", "none"),
        ("pareto:", "pareto"),
        ("markov:leave=0.04,enter=0.010,slow=4", "markov:slow=4,enter=0.01,leave=0.04"),
        ("markov:slow=3.0", "markov"),
        ("trace:stage=0,file=a.csv", "trace:file=a.csv,stage=0"),
        ("gone:at=20,worker=2", "gone:worker=2,at=20"),
    ],
)
def test_canonical_texts(text: str, expected: str) -> None:
    assert canonical(text) == expected == canonical(expected)


def test_delays_know_their_text() -> None:
    assert [make_delays(text, 64, 0).text for text in TEXTS] == [canonical(text) for text in TEXTS]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("late", "delays='late': 'late' does not exist; there are: bad_node, bimodal, .*, trace"),
        ("none:mean=1", "option 'mean' does not exist; it has no options"),
        ("exponential:mean=0", "mean=0.0 is not possible; give a number above 0"),
        ("exponential:shift=-1", r"shift=-1.0 is not possible; give a number of at least 0"),
        ("pareto:shape=inf", "shape=inf is not possible"),
        ("bimodal:share=1.5", "share=1.5 is not possible"),
        ("markov:slow=nan", "delays='markov:slow=nan': slow=nan is not possible; give a number of at least 1"),
        ("markov:enter=0", "enter=0.0 is not possible"),
        ("markov:fast=1", "option 'fast' does not exist; there are: slow, enter, leave, seconds"),
        ("periodic:share=1", "share=1.0 is not possible; give a number .*below 1"),
        ("drift:levels=1.5", "levels='1.5' is not possible; give a whole number of at least 1"),
        ("groups:size=0", "size=0 is not possible"),
        ("bad_node:worker=4", r"worker=4 does not exist; there are 4: 0 … 3"),
        ("gone:worker=-1", "worker=-1 is not possible"),
        ("credits:earned=60", r"earned=60 credits never run out with vcpus=1; give less than 60"),
        ("decoding:share=0", "share=0.0 is not possible"),
        ("link:seconds=0", "seconds=0.0 is not possible"),
        ("trace", r"no file is given; write trace:file=…"),
    ],
)
def test_impossible_texts(text: str, message: str) -> None:
    with pytest.raises(JobError, match=message):
        make_delays(text, 4, 0)


@pytest.mark.parametrize(("workers", "seed"), [(0, 0), (True, 0), (1.0, 0), (2, -1), (2, 0.5)])
def test_impossible_workers_and_seeds(workers: int, seed: int) -> None:
    with pytest.raises(JobError, match="is not possible; give a whole number of at least"):
        make_delays("pareto", workers, seed)


@pytest.mark.parametrize("text", ["pareto", "markov", "groups:size=4", "bad_node", "credits"])
@pytest.mark.parametrize("worker", [-1, 3])
def test_workers_that_do_not_exist(text: str, worker: int) -> None:
    delays = make_delays(text, 3, 0)
    with pytest.raises(ValueError, match=rf"worker.* {worker}\b.* 0 … [02]"):
        delays.end(worker, 0, 0.0, 1.0)
    with pytest.raises(ValueError, match=rf"worker {worker} does not exist; there are 3: 0 … 2"):
        delays.ends([0, worker], 0, 0.0, 1.0)


def test_tasks_and_times_that_do_not_exist() -> None:
    pauses, states = make_delays("pareto", 3, 0), make_delays("markov", 3, 0)
    with pytest.raises(ValueError, match="task -1"):
        pauses.end(0, -1, 0.0, 1.0)
    with pytest.raises(ValueError, match="task -1 does not exist; tasks are counted from 0"):
        pauses.ends([0, 1], [4, -1], 0.0, 1.0)
    for ask in (states.end, states.ends):
        with pytest.raises(ValueError, match="a run's clock begins at 0"):
            ask(0, 0, -1000.0, 1.0)


def test_they_load_without_torch_and_at_once() -> None:
    code = (
        "import sys, time; begun = time.process_time(); import lockstep.engine.delays, lockstep.engine.option_text\n"
        "print(time.process_time() - begun, *{'torch', 'pandas', 'PIL', 'scipy'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert found[1:] == [] and float(found[0]) < 1.0
