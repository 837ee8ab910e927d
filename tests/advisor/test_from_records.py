"""A calibration out of stored rows: whose cells, which parts of a step, and what is refused."""

from __future__ import annotations

import functools

import pandas as pd
import pytest

import fake_advisor
from lockstep.advisor.calibration import NOTHING, CalibratedMachine, CalibrationCell, CalibrationError
from lockstep.advisor.from_records import calibration_of, predictable_rows
from made_up_calibration import predicted_step_seconds


@functools.cache
def everything() -> pd.DataFrame:
    return fake_advisor.stored(rounds=3, off=0.0, noise=0.0).records


def rows(use_case: str = "MLPMixer") -> pd.DataFrame:
    found = everything()
    return found[(found["use_case"] == use_case) & found["experiment"].isin(["calibration", "crowded", "memory"])]


SIZES = {"parameters": 5_000_000, "gradient_bytes": 2e7, "optimiser_bytes": 2e7, "empty_process_bytes": 3e8}


def cell(sync: str, workers: int, batch: int, threads: int = 1) -> CalibrationCell:
    found = [
        each
        for each in calibration_of(rows(), SIZES).cells
        if (each.sync, each.workers, each.per_worker_batch_size, each.threads_per_worker)
        == (sync, workers, batch, threads)
    ]
    (only,) = found
    return only


def test_each_cell_has_its_rounds_and_the_parts_of_its_step() -> None:
    summed = cell("allreduce", 2, 8)
    assert len(summed.step_seconds) == 3
    whole = summed.compute_seconds[0] + summed.exchange_seconds[0] + summed.update_seconds[0]
    assert whole == pytest.approx(summed.step_seconds[0])
    assert summed.exchange_seconds[0] == pytest.approx(1.2e-9 * 2e7), "a byte of the chain, 2 (p-1)/p B of two ranks"
    assert cell("local", 1, 2).exchange_seconds == (0.0,) * 3
    assert cell(NOTHING, 2, 8).sync == NOTHING, "workers side by side"
    assert cell("local", 1, 8, threads=2).step_seconds[0] < cell("local", 1, 8).step_seconds[0]


def test_parts_that_are_means_are_scaled_to_the_step_that_counts() -> None:
    """A step is the lower quartile of a visit's, and its parts are means: one long step made them longer."""
    disturbed = rows().copy()
    for name in ("compute_seconds", "exchange_seconds", "update_seconds"):
        disturbed[name] *= 1.3
    one, other = (calibration_of(each, SIZES).cells[-1] for each in (rows(), disturbed))
    assert other.step_seconds == one.step_seconds
    assert other.compute_seconds == pytest.approx(one.compute_seconds)


def test_memory_is_that_of_new_processes_if_there_are_any() -> None:
    warm = rows().copy()
    warm.loc[warm["experiment"] == "calibration", "peak_pss_bytes"] = 9e9
    found = calibration_of(warm, SIZES)
    assert [(peak.per_worker_batch_size, peak.peak_bytes) for peak in found.memory] == [
        (batch, 300e6 + 2e7 + 2 * 2e7 + 4e6 * batch) for batch in (2, 8)
    ]
    without = calibration_of(warm[warm["experiment"] != "memory"], SIZES)
    assert {peak.peak_bytes for peak in without.memory} == {9_000_000_000}
    assert found.empty_process_bytes == 300_000_000 and found.start_seconds == 3.0


def test_the_machine_and_the_model_are_what_the_rows_show() -> None:
    found = calibration_of(rows(), SIZES)
    assert found.model.name == "MLPMixer" and found.model.gradient_bytes == 20_000_000
    assert found.machine.cores == 2 and found.optimiser_seconds == pytest.approx((0.004,) * 3)
    machine = CalibratedMachine("a CPU", "cpu", 8, 2**34, "", "", "")
    assert calibration_of(rows(), SIZES, machine).machine == machine
    sent = rows().assign(bytes_sent=rows()["sync"].eq("allreduce") * 2e7)
    assert calibration_of(sent).model.gradient_bytes == 20_000_000, "what a rank of two sends"


def test_what_is_made_of_rows_predicts_what_made_them() -> None:
    expected = sum(fake_advisor.parts(fake_advisor.cells(fake_advisor.PARAMETERS)[0].with_(
        use_case="MLPMixer", strategy="processes", launcher="processes", sync="shared_memory", workers=2, hosts=1,
        link_bits_per_second=0.0, experiment="held_out", global_batch_size=32, per_worker_batch_size=16, input="memory",
    )).values())  # fmt: skip
    found = predicted_step_seconds(calibration_of(rows(), SIZES), "shared_memory", 2, 1, 16, errors={})
    assert found.middle == pytest.approx(expected) and found.low < found.middle < found.high


def test_rows_that_say_nothing_of_one_model_are_refused() -> None:
    with pytest.raises(CalibrationError, match="MLPMixer, TextLSTM: a calibration is of one"):
        calibration_of(pd.concat([rows(), rows("TextLSTM")]))
    with pytest.raises(CalibrationError, match="no use case"):
        calibration_of(rows().iloc[:0])
    with pytest.raises(CalibrationError, match="no step of one worker"):
        calibration_of(rows()[rows()["workers"] == 2], SIZES)
    with pytest.raises(CalibrationError, match="how large the gradient is"):
        calibration_of(rows())


def test_only_what_the_advisor_speaks_of_is_kept() -> None:
    found = everything()
    assert predictable_rows(found.assign(compression="topk")).empty
    assert predictable_rows(found.assign(status="failed")).empty
    kept = predictable_rows(found)
    assert set(kept["variant"]) == {"a"} and "wire" not in set(kept["experiment"]) and len(kept) > 100
