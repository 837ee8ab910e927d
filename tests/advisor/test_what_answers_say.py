"""What would change an answer, what it leaves out and what it says of itself: the number behind each sentence."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.advisor.advice import Advised
from lockstep.advisor.calibration import Calibration
from lockstep.advisor.calibration_file import read_calibration
from lockstep.advisor.errors import KindError, error_of
from lockstep.advisor.memory import without_room, worker_bytes
from lockstep.advisor.predict import advise
from lockstep.advisor.question import Question
from lockstep.advisor.showing import shown_lines
from lockstep.advisor.steps import Predictor
from lockstep.predict.link_model import AlphaBeta
from made_up_calibration import GIB, Truth, cell, made_up, with_cells

KINDS = ("as calibrated", "one worker", "a core each", "turns on a core", "several hosts", "several hosts, threads")
NARROW = {kind + more: KindError(20, 0.01, -0.01, 0.01) for kind in KINDS for more in ("", ", another batch")}
WIDE = {kind: KindError(20, 0.3, -0.5, 0.5) for kind in NARROW}
FAST, SLOW = AlphaBeta(1e-6, 1e-12), AlphaBeta(1e-3, 1e-7)


def text_of(advised: Advised, question: Question) -> str:
    return " ".join(" ".join(shown_lines(advised, question)).split())


def test_a_step_beyond_the_one_that_pays_says_why_it_is_not_recommended() -> None:
    found = advise(made_up(), Question(workers=(1, 2)), WIDE)
    assert found.recommended is found.alone and "but the ranges of both overlap" in found.changes[0]
    base = made_up()
    both = int(2 * worker_bytes(base, "shared_memory", 2, 32))
    small = replace(base, machine=replace(base.machine, memory_bytes=both - 1))
    assert "but two do not fit into its memory" in advise(small, Question(workers=(1, 2)), NARROW).changes[0]
    free = made_up(Truth(byte_seconds=(("shared_memory", 0.0), ("allreduce", 5e-10)), added=0.0))
    assert "pay for any length of step" in advise(free, Question(workers=(1, 2)), WIDE).changes[0]


def threaded(seconds: float) -> Calibration:
    """One worker of two threads, too."""
    return with_cells(made_up(), replace(cell("local", 1, 64, (seconds, 0.0, 0.001)), threads_per_worker=2))


def test_another_machine_for_a_worker_of_two_threads() -> None:
    """No two workers of two threads were calibrated: those of one thread stand for them."""
    asked = Question(workers=(1,), link=FAST)
    found = advise(threaded(0.12), asked, NARROW)
    assert found.recommended is not None and found.recommended.threads_per_worker == 2
    text = "\n".join(found.changes)
    assert "pays from a link of" in text and "too few images" not in text
    assert "of a step on 2 machines with 1 worker each computes" in text
    beside = advise(threaded(0.12), Question(workers=(1, 2), link=FAST), {})
    (two,) = [w for w in beside.ways if (w.workers, w.hosts, w.threads_per_worker, w.sync) == (2, 2, 2, "allreduce")]
    assert two.kind == "several hosts, threads, another batch" and not two.extrapolated
    assert not any(w.hosts == 1 and w.workers > 1 and w.threads_per_worker > 1 for w in beside.ways)


def test_the_legend_explains_threads_where_there_are_any() -> None:
    asked = Question(workers=(1, 2))
    with_threads, without = (text_of(advise(one, asked, NARROW), asked) for one in (threaded(0.12), made_up()))
    legend = "batch, memory: per worker mostly: of the step"
    assert f"{legend} 2x2: 2 workers with 2 threads each" in with_threads
    assert legend in without and "2x2" not in without


def test_the_images_with_which_a_step_computes_are_those_of_its_terms() -> None:
    found = advise(made_up(), Question(workers=(1, 2), link=SLOW), NARROW)
    says = r"With (\d+) images per worker and step, 90% of a step on 2 machines with 2 workers each computes"
    (images,) = re.findall(says, found.changes[-1])
    predictor = Predictor(made_up(), NARROW)
    for more, enough in ((0, True), (-1, False)):
        terms = predictor.terms("shared_memory", 4, 2, int(images) + more, link=SLOW)
        assert (terms["computing"] + terms["crowding"] >= 0.9 * sum(terms.values())) is enough


def test_several_machines_that_were_left_out_are_not_stayed_away_from() -> None:
    base = made_up()
    silent = replace(base, cells=tuple(one for one in base.cells if one.sync != "allreduce"))
    asked = Question(workers=(1, 2, 4), link=FAST)
    found = advise(silent, asked, NARROW)
    assert found.sentence.startswith("Train with 2 workers on one machine")
    assert "no all-reduce or DDP of two workers was calibrated" in text_of(found, asked)
    few = advise(base, Question(workers=(1, 2), link=FAST), NARROW)
    assert any("none of the numbers of workers" in line for line in few.scope)


def test_an_error_of_another_batch_is_that_of_its_kind_and_wider() -> None:
    errors = {"a core each": KindError(24, 0.07, -0.1, 0.2)}
    found = error_of("a core each, another batch", errors)
    assert (found.low, found.high) == pytest.approx((0.05 - 0.225, 0.05 + 0.225)) and found.cells == 24
    asked = Question(workers=(2,))
    lines = text_of(advise(made_up(), asked, errors), asked)
    assert "on 24 cells of a core each, 1.5 times as wide a range" in lines


def test_a_step_that_differs_from_round_to_round_is_named() -> None:
    base = made_up()
    uneven = replace(base.cells[0], step_seconds=(0.03, 0.05, 0.04))
    (line,) = [x for x in advise(replace(base, cells=(uneven, *base.cells[1:])), Question()).scope if "rounds" in x]
    assert "batch 16 took 30 to 50 ms in 3 rounds" in line
    assert not any("rounds: the" in each for each in advise(base, Question()).scope)


def test_what_does_not_fit_is_divided_by_arithmetic() -> None:
    found = without_room("big:model", 8, 10 * GIB, 16 * GIB, 4 * GIB, lambda images: GIB * images, GIB)
    assert found.sentence == (
        "It does not fit: one worker of big:model with batch 8 needs about 24 GiB, and the machine has 10 GiB free."
    )
    four = next(one for one in found.sharded if one.workers == 4)
    assert (four.replicated_bytes, four.optimiser_sharded_bytes, four.fully_sharded_bytes) == (
        18 * GIB, 15 * GIB, 7 * GIB
    )  # fmt: skip
    lines = list(shown_lines(found, Question()))
    assert not any(line.startswith(">") for line in lines) and any("fully sharded" in line for line in lines)


def test_an_answer_for_a_gpu_says_that_its_errors_are_of_processors() -> None:
    """Seen on the first GPU that calibrated: the median error of 13's cells stood there as if it were that GPU's."""
    base, asked = made_up(), Question(workers=(1,))
    on_gpu = replace(base, machine=replace(base.machine, device="NVIDIA H100"))
    said = "these errors have not been checked on a GPU"
    assert said in text_of(advise(on_gpu, asked, NARROW), asked)
    assert said not in text_of(advise(base, asked, NARROW), asked)
    assert said not in text_of(advise(on_gpu, asked, {}), asked), "there are no such errors"


def test_the_stored_calibration_of_a_gpu_answers(root: Path) -> None:
    stored = read_calibration(root / "results" / "reference-gpu" / "alexnet_calibration.json")
    assert stored.machine.device != "cpu"
    found = advise(stored, Question(workers=(1,)), NARROW)
    assert found.recommended is found.alone
    said, step = found.alone.images_per_second, sorted(stored.cells[0].step_seconds)
    assert said.low <= 64 / step[1] <= said.high, "the middle of three rounds with a batch of 64"
