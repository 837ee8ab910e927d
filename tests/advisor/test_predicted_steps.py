"""A machine of which every second is known is predicted exactly: computing, crowding, turns, exchange, link, input."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from lockstep.advisor.advice import Span
from lockstep.advisor.calibration import NOTHING, CalibrationError
from lockstep.advisor.coefficients import HIDDEN, coefficients
from lockstep.advisor.errors import KindError
from lockstep.advisor.steps import (
    COMPUTING,
    CROWDING,
    INPUT,
    LINK,
    SENDERS_AWAY,
    TAKING_TURNS,
    TIME_SLICE_SECONDS,
    Predictor,
    kind_of_cell,
    mean_error,
    ranged,
)
from lockstep.predict.link_model import AlphaBeta
from made_up_calibration import MB, Truth, cell, made_up, predicted_step_seconds

TRUTH = Truth()
SIZE = TRUTH.gradient
SHARED, SUMMED = (dict(TRUTH.byte_seconds)[name] for name in ("shared_memory", "allreduce"))
LINK_10 = AlphaBeta(1e-4, 1e-9)
EXACT = KindError(1, 0.0, 0.0, 0.0)


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return Predictor(made_up(), {})


def total(predictor: Predictor, *asked: object, **options: object) -> float:
    return sum(predictor.terms(*asked, **options).values())  # type: ignore[arg-type]


@pytest.mark.parametrize("batch", [1, 16, 40, 64, 128])
def test_one_worker_lies_on_the_line_through_two_batches(predictor: Predictor, batch: int) -> None:
    assert total(predictor, "local", 1, 1, batch) == pytest.approx(TRUTH.computing(batch) + TRUTH.update)


@pytest.mark.parametrize("batch", [8, 64])
def test_two_workers_crowd_each_other_and_exchange(predictor: Predictor, batch: int) -> None:
    computing = TRUTH.computing(batch, 2) + TRUTH.added
    assert total(predictor, "allreduce", 2, 1, batch) == pytest.approx(computing + SUMMED * SIZE + TRUTH.update)
    shared = total(predictor, "shared_memory", 2, 1, batch)
    assert shared == pytest.approx(computing + SHARED * SIZE + TRUTH.update / 2), "each updates its half"


def test_the_calibrated_cells_come_out_as_they_went_in(predictor: Predictor) -> None:
    for one in predictor.calibration.cells:
        if one.sync != NOTHING:
            found = total(predictor, one.sync, one.workers, 1, one.per_worker_batch_size)
            assert found == pytest.approx(one.step_seconds[0]), one


def test_four_workers_take_two_turns_on_two_cores(predictor: Predictor) -> None:
    terms = predictor.terms("allreduce", 4, 1, 16)
    turn = TRUTH.fixed + 16 * TRUTH.image * (1 + TRUTH.crowding) + TRUTH.added + TRUTH.update + SUMMED * 1.5 * SIZE
    assert sum(terms.values()) == pytest.approx(2 * turn)
    assert terms[TAKING_TURNS] == pytest.approx(turn)
    quarter = turn - SUMMED * 1.5 * SIZE - TRUTH.update + SHARED * SIZE + TRUTH.update / 4
    assert total(predictor, "shared_memory", 4, 1, 16) == pytest.approx(2 * quarter + TIME_SLICE_SECONDS), (
        "each updates a quarter, and waits for the others' turns at both barriers"
    )


def test_two_hosts_pay_for_the_link_and_for_sending(predictor: Predictor) -> None:
    terms = predictor.terms("allreduce", 2, 2, 64, link=LINK_10)
    own = TRUTH.computing(64) + TRUTH.added + TRUTH.update + SUMMED * SIZE  # nobody crowds the one worker of a host
    link = 2 * 1e-4 + 1e-9 * SIZE
    assert terms[LINK] == pytest.approx(link) and sum(terms.values()) == pytest.approx(own + link)
    on_four = predictor.terms("shared_memory", 4, 2, 16, link=LINK_10)
    own = TRUTH.computing(16, 2) + TRUTH.added + TRUTH.update / 2 + SHARED * SIZE + SUMMED * SIZE
    assert sum(on_four.values()) == pytest.approx(own + link), "shared memory within a host, a sum between them"
    with pytest.raises(CalibrationError, match="2 hosts need the link between them; give --link"):
        predictor.terms("allreduce", 2, 2, 64)


def test_what_two_crowd_each_other_less_says_nothing_of_a_worker_by_itself() -> None:
    """Two of a team take less time than the crowding of cores for themselves promises: a factor below 1."""
    base = made_up()
    quick = cell("allreduce", 2, 64, (0.9 * TRUTH.computing(64, 2), SUMMED * SIZE, TRUTH.update))
    found = Predictor(replace(base, cells=(*(c for c in base.cells if c.sync != "allreduce"), quick)), {})
    assert found.middle.team("allreduce", 1).factor == pytest.approx(0.9)
    terms = found.terms("allreduce", 2, 2, 64, link=LINK_10)
    assert terms[COMPUTING] + terms[CROWDING] == pytest.approx(TRUTH.computing(64)), "one on each host"
    both = found.terms("allreduce", 2, 1, 64)
    assert both[COMPUTING] + both[CROWDING] == pytest.approx(0.9 * TRUTH.computing(64, 2))


def test_of_several_cells_with_one_batch_the_median_counts() -> None:
    base = made_up()
    others = [(16, 0.5), (16, 2.0), (64, 0.5), (64, 2.0)]
    again = [cell("local", 1, batch, (more * TRUTH.computing(batch), 0.0, TRUTH.update)) for batch, more in others]
    known = coefficients(replace(base, cells=(*base.cells, *again))).alone[1]
    assert (known.fixed_seconds, known.image_seconds) == pytest.approx((TRUTH.fixed, TRUTH.image))


def test_emulated_hosts_take_turns_on_the_cores_of_one_machine(predictor: Predictor) -> None:
    apart = predictor.terms("allreduce", 4, 2, 16, link=LINK_10)
    shared = predictor.terms("allreduce", 4, 2, 16, link=LINK_10, emulated=True)
    assert apart[TAKING_TURNS] == 0
    away = SENDERS_AWAY / 2 * shared[LINK]
    turn = (sum(shared.values()) - shared[LINK] - away) / 2
    assert shared[TAKING_TURNS] == pytest.approx(turn + away)
    assert shared[LINK] == apart[LINK]


def test_decoding_is_added_unless_a_link_hides_it() -> None:
    known = Predictor(replace(made_up(), decode_seconds_per_image=(0.003,) * 3), {})
    assert known.terms("local", 1, 1, 40)[INPUT] == pytest.approx(40 * 0.003)
    waited = known.terms("allreduce", 2, 2, 40, link=AlphaBeta(0.0, 1e-9))
    assert waited[INPUT] == pytest.approx(40 * 0.003 - 1e-9 * SIZE)
    assert known.terms("allreduce", 2, 2, 1, link=AlphaBeta(0.0, 1e-9))[INPUT] == 0


def test_threads_of_one_worker_need_one_batch() -> None:
    base = made_up()
    quick = replace(cell("local", 1, 64, (0.6 * TRUTH.computing(64), 0.0, 0.5 * TRUTH.update)), threads_per_worker=2)
    known = Predictor(replace(base, cells=(*base.cells, quick)), {})
    found = total(known, "local", 1, 1, 16, 2)
    assert found == pytest.approx(0.6 * TRUTH.computing(16) + 0.5 * TRUTH.update)
    with pytest.raises(CalibrationError, match="3 threads per worker were not calibrated; there are: 1, 2"):
        known.terms("local", 1, 1, 16, 3)


def test_an_exchange_inside_the_backward_pass_is_told_by_what_the_step_takes_longer() -> None:
    base = made_up()
    hidden = cell("ddp", 2, 64, (TRUTH.computing(64, 2) + 0.02, 0.0, TRUTH.update))
    known = coefficients(replace(base, cells=(*base.cells, hidden)))
    assert known.team("ddp", 1).byte_seconds == pytest.approx(0.02 / SIZE)
    assert known.team("ddp", 1).added_seconds == pytest.approx(0.0)


def test_what_a_team_computes_longer_than_moving_gradients_can_take_grows_with_the_batch() -> None:
    base = made_up()
    apart = TRUTH.computing(64, 2)
    slow = cell("gossip", 2, 64, (1.2 * apart + TRUTH.update, 0.01, TRUTH.update))
    quick = cell("local_sgd", 2, 64, (0.9 * apart, 0.01, TRUTH.update))
    hidden = cell("ddp", 2, 64, (apart + HIDDEN * SUMMED * SIZE + TRUTH.update + 0.1 * apart, 0.0, TRUTH.update))
    known = coefficients(replace(base, cells=(*base.cells, slow, quick, hidden)))
    found = {name: known.team(name, 1) for name in ("gossip", "local_sgd", "ddp", "allreduce")}
    assert {name: team.factor for name, team in found.items()} == pytest.approx(
        {"gossip": 1.2, "local_sgd": 0.9, "ddp": 1.1, "allreduce": 1.0}
    )
    assert found["gossip"].added_seconds == pytest.approx(TRUTH.update) and found["local_sgd"].added_seconds == 0
    assert found["ddp"].byte_seconds == pytest.approx(HIDDEN * SUMMED)


def test_crowding_is_told_from_teams_where_nobody_trained_for_itself() -> None:
    base = made_up(replace(TRUTH, added=0.0))
    kept = replace(base, cells=tuple(one for one in base.cells if one.sync != NOTHING))
    assert coefficients(kept).alone[1].crowding == pytest.approx(TRUTH.crowding)


def test_what_was_not_calibrated_is_named() -> None:
    with pytest.raises(CalibrationError, match="sync='gossip' were not calibrated; calibrated: allreduce, shared"):
        predicted_step_seconds(made_up(), "gossip", 2, 1, 8)
    nobody = replace(made_up(), cells=tuple(one for one in made_up().cells if one.workers > 1))
    with pytest.raises(CalibrationError, match="no step of one worker alone"):
        predicted_step_seconds(nobody, "local", 1, 1, 8)


def test_the_range_is_the_error_of_its_kind() -> None:
    errors = {"one worker, another batch": KindError(9, 0.05, -0.1, 0.2)}
    span = predicted_step_seconds(made_up(), "local", 1, 1, 40, errors=errors)
    middle = TRUTH.computing(40) + TRUTH.update
    assert (span.low, span.middle, span.high) == pytest.approx(
        (middle * math.exp(-0.1), middle, middle * math.exp(0.2))
    ), "rounds that agree widen nothing"


def test_rounds_that_differ_widen_the_range() -> None:
    logs = [-0.1, 0.0, 0.1]
    spread = 2.919986 * 0.1 / math.sqrt(3)  # Student's t of two degrees of freedom, 95 %
    assert mean_error([math.exp(each) for each in logs]) == pytest.approx(spread, rel=1e-5)
    found = ranged(1.0, [math.exp(each) for each in logs], KindError(9, 0.0, -0.05, 0.0))
    assert math.log(found.low) == pytest.approx(-math.hypot(0.05, spread), rel=1e-5)
    assert math.log(found.high) == pytest.approx(spread, rel=1e-5)
    assert mean_error([1.0]) == 0.1, "one round shows no spread: assumed"


def test_what_the_error_of_the_kind_holds_of_the_rounds_is_not_counted_again() -> None:
    rounds = [math.exp(each) for each in (-0.1, 0.0, 0.1)]
    own = mean_error(rounds)
    alike, calmer = (KindError(9, 0.0, -0.05, 0.05, calibration_spread=each) for each in (own, 0.6 * own))
    assert math.log(ranged(1.0, rounds, alike).high) == pytest.approx(0.05), "calibrations were off as much behind it"
    assert math.log(ranged(1.0, rounds, calmer).high) == pytest.approx(math.hypot(0.05, 0.8 * own))
    assert ranged(1.0, [1.0] * 3, alike).high == pytest.approx(math.exp(0.05)), "and never less than the error"
    assert math.log(ranged(1.0, [1.0], alike).high) == pytest.approx(math.hypot(0.05, 0.1)), "one round: assumed"


def test_the_spread_is_that_of_predictions_from_each_round() -> None:
    base = made_up()
    slower = (1.0, 1.1, 1.2)
    drifting = replace(
        base,
        cells=tuple(
            replace(one, **{name: tuple(v * f for v, f in zip(getattr(one, name), slower, strict=True)) for name in (
                "step_seconds", "compute_seconds", "exchange_seconds", "update_seconds")})
            for one in base.cells
        ),
    )  # fmt: skip
    kinds = dict.fromkeys(("one worker", "a core each"), EXACT)
    span = Predictor(drifting, kinds).step_seconds("allreduce", 2, 1, 20)
    assert span.middle == pytest.approx(1.1 * total(Predictor(base, {}), "allreduce", 2, 1, 20))
    assert span.high / span.middle == pytest.approx(math.exp(mean_error([1.0, 1.1, 1.2])))


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        (("local", 1, 1, 64), "as calibrated"),
        (("allreduce", 2, 1, 64), "as calibrated"),
        (("local", 1, 1, 40), "one worker, another batch"),
        (("allreduce", 2, 1, 16), "a core each, another batch"),
        (("allreduce", 4, 1, 64), "turns on a core"),
        (("allreduce", 4, 2, 64), "several hosts"),
        (("allreduce", 8, 2, 64), "several hosts, turns on a core"),
        (("allreduce", 8, 2, 1), "several hosts, turns on a core, another batch"),
    ],
)
def test_kinds_of_cells(asked: tuple[str, int, int, int], kind: str) -> None:
    assert kind_of_cell(made_up(), *asked) == kind


def test_spans() -> None:
    span = Span(1.0, 2.0, 4.0)
    assert span.inverse(8.0) == Span(2.0, 4.0, 8.0)
    assert span.overlaps(Span(4.0, 5.0, 6.0)) and not span.overlaps(Span(4.1, 5.0, 6.0))
    ratio = span.over(Span(4.0, 5.0, 6.0))
    assert ratio.low < ratio.middle == 0.4 < ratio.high == 1.0


def test_a_gradient_of_nothing_costs_nothing_to_exchange() -> None:
    tiny = made_up(Truth(gradient=4))
    assert sum(Predictor(tiny, {}).terms("allreduce", 2, 1, 64).values()) < TRUTH.computing(64, 2) + 2 * TRUTH.update
    assert SIZE == 40 * MB
