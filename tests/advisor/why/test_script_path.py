"""The path for a script, on made-up looks at its processes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lockstep.advisor.why.observations import (
    EXCHANGE,
    FEW_THREADS,
    INPUT,
    OTHERS,
    PAGE_FAULTS,
    START,
    THREADS,
    UNEQUAL,
)
from lockstep.advisor.why.script import (
    LOADS,
    LOCK,
    PIPE,
    SLEEP,
    TRAINS,
    ProcessSeen,
    ScriptSeen,
    causes_of_script,
)


def process(role: str = TRAINS, asleep: float = 0.02, kind: str = LOCK, **others: Any) -> ProcessSeen:
    """One that computes with two threads, and sleeps now and then."""
    values: dict[str, Any] = {
        "cores": 2, "cpu_cores": 1.9, "runnable": 1.9, "threads": 3, "page_faults": 500.0, "swapped": 0.0,
        "switched_out": 20.0, "read_bytes": 0.0,
    }  # fmt: skip
    return ProcessSeen(role, main_awake=1 - asleep, main_waits=((kind, asleep),), **(values | others))


def idle(role: str = TRAINS, asleep: float = 0.9, kind: str = PIPE, **others: Any) -> ProcessSeen:
    return process(role, asleep, kind, **({"cpu_cores": 1 - asleep, "runnable": 1 - asleep} | others))


def busy(role: str = TRAINS, **others: Any) -> ProcessSeen:
    return process(role, **({"cpu_cores": 1.0, "runnable": 1.0} | others))


HEALTHY = ScriptSeen(("python", "train.py"), 20.0, 190, 2, (process(),), 2.0)
PAIR = (busy(), busy())


def kinds(*processes: ProcessSeen, **changes: Any) -> list[str]:
    found = causes_of_script(replace(HEALTHY, processes=processes or (process(),), **changes))
    assert all(cause.gain_seconds is None and cause.found and cause.command for cause in found)
    return [cause.kind for cause in found]


def test_a_healthy_script_has_no_cause() -> None:
    assert kinds() == [] and kinds(*PAIR) == []
    assert kinds(process(), busy(LOADS, cpu_cores=0.2, runnable=0.2)) == []


@pytest.mark.parametrize("loads", [busy(LOADS), idle(LOADS, kind=SLEEP)])
def test_what_trains_waits_for_those_that_load(loads: ProcessSeen) -> None:
    assert kinds(idle(), loads) == [INPUT]


@pytest.mark.parametrize("kind", [SLEEP, PIPE, LOCK])
def test_what_trains_sleeps_while_nothing_computes(kind: str) -> None:
    assert kinds(idle(kind=kind)) == [INPUT]


def test_waiting_for_its_own_threads_that_compute_is_no_input() -> None:
    """TensorFlow's first thread sleeps while others compute."""
    assert kinds(process(asleep=0.95)) == []


def test_a_busy_machine_looks_neither_like_a_slow_input_nor_like_too_many_threads() -> None:
    """Ready threads that wait for a core count as awake: half the CPU time, as many threads."""
    assert kinds(process(cpu_cores=0.9, runnable=2.0), others_share=0.5) == [OTHERS]


def test_more_threads_than_cores() -> None:
    (cause,) = causes_of_script(replace(HEALTHY, processes=(process(runnable=4.0, omp_threads="4"),) * 2))
    assert (cause.kind, cause.number) == (THREADS, 4.0)
    assert "OMP_NUM_THREADS is 4" in cause.found
    assert cause.command == "lockstep why -- env OMP_NUM_THREADS=1 python train.py"


def test_one_thread_on_many_cores() -> None:
    assert kinds(busy(cores=8, omp_threads="1"), cores=8) == [FEW_THREADS]
    assert kinds(busy(cores=8), cores=8, others_share=0.6) == [OTHERS], "no core is idle"


def test_several_that_train_wait_while_the_network_carries_bytes() -> None:
    pair = (idle(asleep=0.5), idle(asleep=0.6))
    assert kinds(*pair, network_bytes=5e7) == [EXCHANGE]
    assert kinds(*pair) == [], "who knows what they wait for"


def test_one_waits_for_the_other() -> None:
    assert kinds(busy(), idle(asleep=0.6, kind=LOCK)) == [UNEQUAL]
    assert kinds(busy(), busy(cpu_cores=0.5)) == [], "the other is awake, so others have its core"


def test_a_script_that_has_hardly_begun() -> None:
    assert kinds(start_seconds=8.0, ended=True) == [START]
    assert kinds(start_seconds=8.0) == [], "it goes on"


def test_page_faults() -> None:
    assert kinds(process(page_faults=600_000.0)) == [PAGE_FAULTS]
