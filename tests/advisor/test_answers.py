"""The answer: what is recommended, what fits, how far it reaches, what would change it, and how it is shown."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.advisor.advice import Advised
from lockstep.advisor.calibration import Calibration, CalibrationError
from lockstep.advisor.changes import smallest
from lockstep.advisor.errors import KindError, error_of, read_errors
from lockstep.advisor.memory import MemoryLine, sharded, worker_bytes
from lockstep.advisor.predict import advise
from lockstep.advisor.question import Question
from lockstep.advisor.showing import WIDTH, shown_lines, shown_ways
from lockstep.advisor.verified import Verified, verified_lines
from lockstep.predict.layout_model import LayerTime
from lockstep.predict.link_model import AlphaBeta
from made_up_calibration import MB, Truth, cell, made_up, with_cells

NARROW = {
    kind + more: KindError(20, 0.01, -0.01, 0.01)
    for kind in ("as calibrated", "one worker", "a core each", "turns on a core", "several hosts", "a pipeline")
    for more in ("", ", another batch")
}
WIDE = {kind: KindError(20, 0.3, -0.5, 0.5) for kind in NARROW}
FAST, SLOW = AlphaBeta(1e-6, 1e-12), AlphaBeta(1e-3, 1e-7)


def text_of(advised: Advised, question: Question) -> str:
    return "\n".join(shown_lines(advised, question))


def test_two_workers_are_recommended_where_they_are_faster() -> None:
    found = advise(made_up(), Question(workers=(1, 2)), NARROW)
    assert found.recommended is not None and found.alone is not None and found.gain is not None
    assert (found.recommended.sync, found.recommended.workers) == ("shared_memory", 2)
    assert found.recommended is found.fastest
    truth = Truth()
    two = truth.computing(32, 2) + truth.added + truth.update / 2 + 1e-10 * truth.gradient
    assert found.gain.middle == pytest.approx((truth.computing(64) + truth.update) / two)
    assert found.gain.low > 1
    assert re.match(r"Train with 2 workers on one machine by shared memory: 1\.\d+ to 1\.\d+ times", found.sentence)


def test_what_can_not_be_told_apart_is_answered_by_the_simpler_way() -> None:
    found = advise(made_up(), Question(workers=(1, 2)), WIDE)
    assert found.recommended is found.alone and found.fastest is not None and found.fastest.workers == 2
    assert found.sentence.startswith("Stay with one worker: ") and "which the prediction can't tell" in found.sentence


def test_threads_of_one_worker_are_simpler_than_two_workers() -> None:
    base, truth = made_up(), Truth()
    two = truth.computing(32, 2) + truth.added + truth.update / 2 + 1e-10 * truth.gradient
    threaded = replace(cell("local", 1, 64, (two, 0.0, 0.0)), threads_per_worker=2)
    found = advise(with_cells(base, threaded), Question(workers=(1, 2)), NARROW)
    assert found.recommended is not None
    assert (found.recommended.workers, found.recommended.threads_per_worker) == (1, 2)
    assert "one worker of 2 threads" in found.sentence
    shown = [(way.workers, way.threads_per_worker) for way in shown_ways(found, Question(workers=(1, 2)))]
    assert shown == [(1, 1), (1, 2), (2, 1)]


def test_stay_on_one_machine_is_an_answer() -> None:
    question = Question(workers=(1, 2, 4, 8), link=SLOW)
    found = advise(made_up(), question, NARROW)
    assert found.recommended is not None and found.recommended.hosts == 1
    assert found.sentence.startswith("Stay on one machine: train with 2 workers")
    assert found.ways[-1].dominating == "link"


def test_several_machines_are_an_answer_too() -> None:
    found = advise(made_up(), Question(workers=(1, 2, 4, 8), link=FAST), NARROW)
    assert found.recommended is not None and found.recommended.hosts == 4
    assert found.sentence.startswith("Train with 8 workers on 4 machines by ")


def test_one_core_takes_turns() -> None:
    question = Question(workers=(1, 2))
    found = advise(made_up(Truth(cores=1)), question, NARROW)
    assert found.recommended is found.alone
    assert {way.kind for way in found.ways if way.workers == 2} == {"turns on a core, another batch"}


def test_what_does_not_fit_is_not_recommended() -> None:
    base = made_up()
    two = 2 * worker_bytes(base, "shared_memory", 2, 32)
    small = replace(base, machine=replace(base.machine, memory_bytes=int(two) - 1))
    found = advise(small, Question(workers=(1, 2)), NARROW)
    assert found.recommended is found.alone
    assert [way.fits for way in found.ways if way.workers == 2] == [False, False]


def test_nothing_fits_is_an_answer_with_the_arithmetic_of_sharding() -> None:
    question = Question(workers=(1, 2), memory_bytes=100 * MB)
    found = advise(made_up(), question, NARROW)
    assert found.recommended is None and found.gain is None and found.verify == () and found.changes == ()
    assert found.sentence.startswith("It does not fit: one worker with batch 64 needs 462 MiB, and the machine has 95.")
    four = next(one for one in found.sharded if one.workers == 4)
    state, rest = 120 * MB, 300 * MB + 16 * MB
    assert four.replicated_bytes == pytest.approx(state + rest)
    assert four.optimiser_sharded_bytes == pytest.approx(state + rest - 30 * MB)
    assert four.fully_sharded_bytes == pytest.approx(state / 4 + rest + 10 * MB)
    assert "FSDP or DeepSpeed" in text_of(found, question)


def test_memory_of_a_worker() -> None:
    base = made_up()
    assert MemoryLine.of(base).peak_bytes(40) == pytest.approx(300 * MB + 120 * MB + 40 * MB)
    assert worker_bytes(base, "local", 1, 40) == pytest.approx(460 * MB)
    assert worker_bytes(base, "ddp", 2, 40) == pytest.approx(460 * MB)
    assert worker_bytes(base, "allreduce", 2, 40) == pytest.approx(470 * MB)
    assert worker_bytes(base, "shared_memory", 2, 40) == pytest.approx(470 * MB - 40 * MB), "half of what stands once"
    assert sharded(base, 1, 40).fully_sharded_bytes == pytest.approx(460 * MB), "one worker divides nothing"
    with pytest.raises(CalibrationError, match="holds no peak of memory"):
        MemoryLine.of(replace(base, memory=()))
    one = MemoryLine.of(replace(base, memory=base.memory[1:]))
    assert (one.base_bytes, one.image_bytes) == pytest.approx((420 * MB, 1 * MB)), "the rest belongs to the images"


def test_what_lies_beyond_the_calibration_is_marked() -> None:
    question = Question(workers=(1, 2, 256), global_batch_sizes=(256,), link=FAST)
    found = advise(made_up(), question, NARROW)
    reasons = {(way.workers, way.extrapolated) for way in found.ways}
    assert (1, "batch 256 per worker is more than 2 x 64") in reasons
    assert (2, "") in reasons, "128 images each are twice what was calibrated"
    assert (256, "256 workers are more than 64 x 2") in reasons
    assert "Extrapolated (*)" in text_of(found, question)


def test_a_larger_batch_is_compared_beside_and_sent_to_notebook_07() -> None:
    question = Question(workers=(1, 2), global_batch_sizes=(64, 256))
    found = advise(made_up(), question, NARROW)
    assert found.recommended is not None and found.recommended.global_batch_size == 64
    assert max(way.images_per_second.middle for way in found.ways) > found.recommended.images_per_second.middle
    assert "notebooks/07_convlstm_batch_size.ipynb" in text_of(found, question)
    assert "07_convlstm" not in text_of(advise(made_up(), Question(), NARROW), Question())


def test_seconds_and_price_until_so_many_images() -> None:
    question = Question(workers=(1, 4), images=1e6, price_per_hour=0.4, link=FAST)
    found = advise(made_up(), question, NARROW)
    for way in found.ways:
        assert way.seconds_to_images is not None and way.price_to_images is not None
        start = 2.0 if way.workers > 1 else 0.0
        assert way.seconds_to_images.middle == pytest.approx(start + 1e6 / way.images_per_second.middle)
        assert way.price_to_images.middle == pytest.approx(way.seconds_to_images.middle * way.hosts * 0.4 / 3600)


def test_what_would_change_the_answer_is_right() -> None:
    """At the rate and at the batch that are named, one more machine is just as fast."""
    base, truth = made_up(), Truth()
    found = advise(base, Question(workers=(1, 2), link=SLOW), NARROW)
    (rate,) = re.findall(r"pays from a link of ([\d.]+) Gbit/s on", "\n".join(found.changes))
    link = AlphaBeta(SLOW.alpha_seconds, 8 / (float(rate) * 1e9))
    one = truth.computing(32, 2) + truth.added + truth.update / 2 + 1e-10 * truth.gradient
    two = truth.computing(16, 2) + truth.added + truth.update / 2 + (1e-10 + 5e-10) * truth.gradient
    two += link.seconds(2, truth.gradient)
    assert two == pytest.approx(one, rel=0.01)
    (images,) = re.findall(r"global batch of about (\d+) on", "\n".join(found.changes))
    saved = (math.ceil(int(images) / 2) - math.ceil(int(images) / 4)) * truth.image * (1 + truth.crowding)
    assert saved == pytest.approx(5e-10 * truth.gradient + SLOW.seconds(2, truth.gradient), rel=0.01)


def test_from_which_step_on_two_workers_pay() -> None:
    slow = made_up(Truth(byte_seconds=(("shared_memory", 3e-9), ("allreduce", 5e-9))))
    found = advise(slow, Question(workers=(1, 2)), NARROW)
    assert found.recommended is found.alone
    (told,) = re.findall(r"\(shared_memory\) pay from ([\d.]+) ms of a step of one worker on", found.changes[0])
    truth, rest = Truth(), 3e-9 * Truth().gradient + Truth().added + Truth().update / 2

    def steps(factor: float) -> tuple[float, float]:
        return factor * truth.computing(64) + truth.update, factor * truth.computing(32, 2) + rest

    factor = (rest - truth.update) / (truth.computing(64) - truth.computing(32, 2))
    assert steps(factor)[0] == pytest.approx(steps(factor)[1]), "there both take as long"
    assert float(told) / 1e3 == pytest.approx(steps(factor)[0], rel=5e-3) and "overlap" not in found.changes[0]


def test_smallest_halves_what_it_does_not_know() -> None:
    assert smallest(lambda number: number >= 7, 1, 1e6) == pytest.approx(7, rel=1e-5)
    assert smallest(lambda number: False, 1, 10) is None and smallest(lambda number: True, 1, 10) == 1


def with_layers() -> Calibration:
    layers = tuple(LayerTime(10**6, 0.001, 0.0005, 1000.0) for _ in range(4))
    return replace(made_up(), layers=layers)


def test_a_model_that_can_be_cut_is_offered_as_a_pipeline() -> None:
    found = advise(with_layers(), Question(workers=(1, 2, 4), link=SLOW), NARROW)
    pipelined = [way for way in found.ways if way.sync == "pipeline"]
    assert [(way.workers, way.hosts) for way in pipelined] == [(2, 1), (4, 2)]
    assert all("micro-batches" in way.detail and way.kind == "a pipeline" for way in pipelined)
    assert pipelined[0].memory_bytes < worker_bytes(with_layers(), "local", 1, 64), "each holds half of the state"
    assert not any(way.sync == "pipeline" for way in advise(made_up(), Question(), NARROW).ways)


@pytest.mark.parametrize("asked", [Question(), Question((1, 2, 3, 64), (1, 2), (64, 512), FAST, 1e9, 12.5)])
def test_the_answer_fits_a_terminal_and_json(asked: Question) -> None:
    found = advise(with_layers(), asked)
    lines = list(shown_lines(found, asked))
    assert lines[0].startswith(found.sentence[:60]) and max(map(len, lines)) <= WIDTH
    stored = json.loads(json.dumps(found.as_json()))
    assert stored["sentence"] == found.sentence and len(stored["ways"]) == len(found.ways)
    assert stored["ways"][0]["dominating"] == found.ways[0].dominating


def test_many_workers_are_thinned_to_a_small_table() -> None:
    asked = Question(tuple(range(1, 33)), link=SLOW)
    rows = [line for line in shown_lines(advise(made_up(), asked, NARROW), asked) if re.match(r"^[>*!]* +\d+ ", line)]
    assert 5 <= len(rows) <= 10 and any(row.startswith(">") for row in rows)


def test_where_the_ranges_come_from_is_said() -> None:
    asked = Question(workers=(1, 2))
    measured = text_of(advise(made_up(), asked, NARROW), asked)
    assert "on 20 cells that were held out" in measured and "range is assumed" not in measured
    assert "all processors together" in measured, "the notebook tells one processor's numbers from them"
    assert "The range is assumed, not measured, for:" in text_of(advise(made_up(), asked, {}), asked)
    disturbed = replace(made_up(), others_share=0.5, cut_short="without DDP")
    told = text_of(advise(disturbed, asked, {}), asked)
    assert "Other processes took 50%" in told and "not complete: without DDP." in told


def test_nothing_possible_is_refused() -> None:
    with pytest.raises(CalibrationError, match="leaves nothing to predict"):
        advise(made_up(), Question(workers=(3,), hosts=(2,), link=FAST), NARROW)


def test_errors_are_read_from_a_file(tmp_path: Path) -> None:
    one = {"cells": 24, "median_error": 0.07, "low": -0.1, "high": 0.2}
    path = tmp_path / "errors.json"
    assert read_errors(path) == {}
    path.write_text(json.dumps({"schema": 1, "kinds": {"a core each": one}}))
    errors = read_errors(path)
    assert errors == {"a core each": KindError(24, 0.07, -0.1, 0.2)}
    assert error_of("a core each", errors) == errors["a core each"]
    assert error_of("several hosts, turns on a core", errors).assumed
    for number, (wrong, says) in enumerate(
        [({"schema": 2, "kinds": {}}, "schema 2, not 1"), ({"schema": 1}, "not readable"), ([], "not readable"),
         ({"schema": 1, "kinds": {"a core each": one | {"low": 0.3}}}, "no range from low to high")]
    ):  # fmt: skip
        bad = tmp_path / f"wrong{number}.json"
        bad.write_text(json.dumps(wrong))
        with pytest.raises(CalibrationError, match=says):
            read_errors(bad)


def test_verified_ways_stand_beside_what_was_predicted() -> None:
    found = advise(made_up(), Question(workers=(1, 2)), NARROW)
    assert found.alone is not None and len(found.verify) == 3, "the two best and the simplest"
    step = found.alone.step_seconds.middle
    near = Verified(found.alone, (step * 1.005,) * 3)
    assert near.held and near.error == pytest.approx(1 / 1.005 - 1)
    far = Verified(found.verify[1], (found.verify[1].step_seconds.middle * 2,))
    lines = "\n".join(verified_lines([near, far, Verified(found.verify[2], ())]))
    assert "inside the range" in lines and "-50.0%, outside the range" in lines and "not verifiable here" in lines
    assert "median error 25.2% over 2 ways" in lines
