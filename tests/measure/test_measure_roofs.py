"""The machine's own limits: the best of many tries, and photos decoded by one core."""

from __future__ import annotations

import pytest

import tiny
from clocks import clock
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job
from lockstep.engine.training.loop import Site
from lockstep.measure.probes.roofs import matrix_peak, run_decode, run_machine


def test_the_best_product_counts() -> None:
    found = matrix_peak(side=10, seconds_budget=0, clock=clock([0.5, 0.25, 1.0]))
    assert found == 2 * 10**3 / 0.25


def test_products_go_on_until_the_budget_is_spent() -> None:
    assert matrix_peak(side=10, seconds_budget=4.0, clock=clock([1.0, 1.0, 1.0, 0.5, 0.5])) == 2 * 10**3 / 0.5


def test_no_matrix() -> None:
    with pytest.raises(ValueError, match="side=0 is no matrix"):
        matrix_peak(side=0)


@pytest.mark.slow
def test_both_roofs_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.measure.probes.roofs.MATRIX_SIDE", 64)
    job = Job(experiment="machine", use_case="none", strategy="roof_1_core", input="none")
    trace = run_machine(job, ThreadGroup.of(1)[0])
    assert set(trace.scores) == {"flops_per_second", "bandwidth_bytes_per_second"}
    assert trace.scores["flops_per_second"] > 1e8 and trace.scores["bandwidth_bytes_per_second"] > 1e7
    assert trace.steps == [], "nothing was trained"


def test_decoding_reads_every_photo_twice_and_counts_once() -> None:
    loaded: list[int] = []
    case = tiny.case()
    data = case.open("train", None)
    original = data.load

    class Counting:
        shape, labels = data.shape, data.labels

        def __len__(self) -> int:
            return len(data)

        def load(self, ids, *others):  # type: ignore[no-untyped-def]
            loaded.extend(int(i) for i in ids)
            return original(ids, *others)

    job = Job(experiment="decode", use_case="own", strategy="decode")
    trace = run_decode(job, ThreadGroup.of(1)[0], Site(use_case=tiny.case(train=Counting())))
    assert sorted(loaded) == sorted([*range(len(data))] * 2)
    assert trace.scores["images_per_second"] == pytest.approx(len(data) / trace.scores["step_seconds"])
