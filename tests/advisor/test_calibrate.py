"""A calibration holds what there was time for, the most important first."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lockstep.advisor.calibration import NOTHING, CalibrationError
from lockstep.advisor.calibration_file import read_calibration, without_paths, write_calibration
from lockstep.advisor.measuring import calibrate as calibrating
from lockstep.advisor.measuring.batches import pair_of_batches, timed_batch
from lockstep.advisor.measuring.calibrate import calibrate, kind_of_failure
from lockstep.advisor.measuring.layer_times import layer_times_of
from lockstep.advisor.measuring.own_model import ModelAsked
from lockstep.advisor.predict import advise
from lockstep.advisor.question import Question
from lockstep.advisor.showing import shown_lines
from lockstep.engine.cores import usable_cores
from lockstep.engine.data.errors import DataError
from lockstep.measure.contention import Contention
from photo_sets import photo_set, truncate

ASKED = ModelAsked("own_models:perceptron", "6", batch=8)


@pytest.mark.slow
@pytest.mark.skipif(len(usable_cores()) < 2, reason="one core: there are no two workers")
@pytest.mark.usefixtures("no_leftovers")
def test_a_calibration_of_a_small_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrating, "ROUNDS", 1)
    monkeypatch.setattr(calibrating, "FEWEST_ROUNDS", 1)
    monkeypatch.setattr(calibrating, "LATER_WAYS", ())  # three more processes
    told: list[str] = []
    found = calibrate(ASKED, 300.0, told.append, force=True)
    ways = {(cell.sync, cell.workers, cell.per_worker_batch_size, cell.threads_per_worker) for cell in found.cells}
    cores = len(usable_cores())
    assert ways == {
        ("local", 1, 8, 1), ("local", 1, 2, 1), (NOTHING, cores, 8, 1), ("shared_memory", 2, 8, 1),
        ("allreduce", 2, 8, 1), ("ddp", 2, 8, 1), ("local", 1, 8, cores),
    }  # fmt: skip
    assert found.cut_short == "" and [each.per_worker_batch_size for each in found.memory] == [2, 8]
    assert min(each.peak_bytes for each in found.memory) >= found.empty_process_bytes > 50 << 20
    assert len(found.optimiser_seconds) == len(found.copy_bytes_per_second) == 1
    assert found.start_seconds > 0 and found.machine.cores == cores and 0 <= found.others_share < 1
    assert [layer.parameters for layer in found.layers] == [56, 27]
    assert "the model is tried once" in told and "round 1: 7 ways" in " ".join(told)
    write_calibration(tmp_path / "here.json", found)
    assert read_calibration(tmp_path / "here.json") == found


def test_what_is_refused_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CalibrationError, match="0 seconds are not possible"):
        calibrate(ASKED, 0)
    with pytest.raises(DataError, match="can't be listed"):
        calibrate(ModelAsked("own_models:perceptron", "6", data=str(tmp_path / "nowhere")))
    monkeypatch.setattr(Contention, "contended", lambda self: True)
    with pytest.raises(CalibrationError, match=r"other programs take \d+% of the \d+ cores' time.*--force"):
        calibrate(ASKED)


def test_a_busy_machine_is_told_of_and_measured_all_the_same_where_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Contention, "contended", lambda self: True)
    monkeypatch.setattr(calibrating, "_QUIET_SECONDS", 0.0)
    told: list[str] = []
    own = calibrating._tried_on_quiet_machine(ASKED, told.append, force=True)
    assert own.facts.name == ASKED.model
    assert len(told) == 1 and "cores' time: what is measured will be too slow" in told[0]


def test_the_batch_that_is_timed() -> None:
    """Steps of 0.1 s + 20 ms a sample."""
    assert timed_batch(16, {4: 0.18, 16: 0.42}) == 16
    assert timed_batch(64, {16: 0.42, 64: 1.38}) == 32, "0.74 s: half of what was asked for, however long"
    assert timed_batch(64, {16: 1.4, 64: 5.4}) == 16, "1.4 s; a step of 32 samples would take 2.7 s"
    assert timed_batch(64, {16: 5.0, 64: 5.1}) == 64, "a smaller batch would take as long"
    assert timed_batch(32, {}) == 32
    assert [pair_of_batches(size) for size in (1, 2, 3, 4, 32)] == [(2, 1), (2, 1), (3, 2), (4, 2), (32, 8)]


def test_what_workers_told_is_stored_without_the_readers_files() -> None:
    told = "worker 1 failed: FileNotFoundError: [Errno 2] No such file: '/srv/secret/data.bin'"
    assert kind_of_failure(told) == "FileNotFoundError"
    assert kind_of_failure("rank 0 was killed\nby signal 9") == "rank 0 was killed"
    assert without_paths('{"weights": "/srv/models/w.pt", "rate": 0.1}') == '{"weights": "w.pt", "rate": 0.1}'
    assert without_paths("of ~/a/b.txt, C:\\\\me\\c.txt and ../d") == "of b.txt, c.txt and d"
    assert without_paths("2 of 3 rounds and/or 1/2, read/write") == "2 of 3 rounds and/or 1/2, read/write"


def test_layer_times_are_a_line_through_two_batches() -> None:
    def row(parameters: int, seconds: float, batch: int) -> dict[str, float | str]:
        return {
            "parameters": parameters, "forward_seconds": seconds / 4, "backward_seconds": seconds * 3 / 4,
            "output_bytes": 100 * batch,
        }  # fmt: skip

    few = [row(0, 0.1, 2), row(50, 1.2, 2), row(0, 0.2, 2), row(30, 2.0, 2)]
    many = [row(0, 0.1, 8), row(50, 1.8, 8), row(0, 0.8, 8), row(30, 1.9, 8)]
    times = layer_times_of([(2, few), (8, many)])
    assert [each.parameters for each in times] == [50, 30], "a layer without parameters joins one that has some"
    assert times[0].fixed_seconds == pytest.approx(1.1) and times[0].image_seconds == pytest.approx(0.2)
    assert times[1].fixed_seconds == pytest.approx(1.9) and times[1].image_seconds == 0.0
    assert times[0].output_bytes == 100


@pytest.mark.slow  # workers start, and sleep in every step until the time is over
@pytest.mark.skipif(len(usable_cores()) < 2, reason="one core: there are no two workers")
@pytest.mark.usefixtures("no_leftovers")
def test_a_calibration_that_time_cuts_short_gives_an_answer_that_says_so() -> None:
    """Seven ways to train, three steps of 0.45 s each and twice as many for the first time, take longer than that."""
    seconds, began, told = 18.0, time.monotonic(), list[str]()
    found = calibrate(ModelAsked("own_models:Dozing", "6", batch=8), seconds, told.append, force=True)
    assert time.monotonic() - began < seconds + 30, "what was measured by then"
    assert found.cells and found.cells[0].step_seconds[0] > 0.45 and found.cells[0].workers == 1
    assert "no time was left" in found.cut_short or "of 2 rounds" in found.cut_short, found.cut_short
    asked = Question(workers=(1, 2), global_batch_sizes=(8,))
    advised = advise(found, asked)
    assert advised.recommended is not None and advised.alone is not None
    assert f"The calibration is not complete: {found.cut_short}." in advised.scope
    assert "not complete" in " ".join(shown_lines(advised, asked))


@pytest.mark.slow
@pytest.mark.usefixtures("no_leftovers")
def test_one_core_has_no_two_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoding is timed too where a folder of photos is named, without those that can't be read."""
    monkeypatch.setattr(calibrating, "usable_cores", lambda: [0])
    monkeypatch.setattr(calibrating, "ROUNDS", 1)
    monkeypatch.setattr(calibrating, "FEWEST_ROUNDS", 1)
    photos = photo_set(tmp_path / "photos", train=4, test=2)
    truncate(photos / "train" / "a" / "00.jpg")
    asked = ModelAsked("own_models:Both", '["3,8,8", "int64:5"]', vocabulary=11, batch=1, data=str(photos))
    found = calibrate(asked, 300.0, force=True)
    assert [(cell.sync, cell.workers, cell.per_worker_batch_size) for cell in found.cells] == [
        ("local", 1, 2), ("local", 1, 1),
    ]  # fmt: skip
    assert found.cut_short == "without two workers (this machine has one core)" and found.layers == ()
    assert [each.per_worker_batch_size for each in found.memory] == [1, 2]
    assert len(found.decode_seconds_per_image) == 1 and found.decode_seconds_per_image[0] > 0
