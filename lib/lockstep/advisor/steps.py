"""The seconds of a step by what takes them, and the range that they lie in.

    terms            computing | crowding | exchange | optimizer | taking turns | input | link     the step is their sum
                     the first four of one turn, T - 1 times as much again for taking turns

    taking turns     besides that, ranks that meet in one copy of the parameters wait for a time slice of the scheduler
                     at two barriers of half a slice each, T - 1 times;  and a message moves only while its sender has
                     the core, so that the link takes 1 + SENDERS_AWAY x (1 - 1/T) times as long

    the range        middle x exp(error of this kind of cell, 5 % and 95 %), widened by the calibration's own spread:
                     the step is predicted from each round alone, and Student's t says how far their mean may be off.
                     What it is beyond that of the calibrations of notebook 13 counts, for their error holds theirs;
                     and by steps that differ from each other more than usual: see `spreads`

Several hosts: each is a machine as the calibrated one. Emulated hosts share its cores, so that all ranks together take
turns on them. What a core spends on sending (copies into the kernel and out, the sum) is the exchange of an all-reduce
between two processes; the link's own time comes on top of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean, stdev

from lockstep.advisor.advice import Span
from lockstep.advisor.calibration import Calibration, CalibrationError
from lockstep.advisor.coefficients import (
    ALONE,
    LIKE_ALLREDUCE,
    Coefficients,
    chain_name,
    coefficients,
    has_one_copy,
    places,
    rounds_of,
)
from lockstep.advisor.errors import (
    A_CORE_EACH,
    ANOTHER_BATCH,
    AS_CALIBRATED,
    ONE_WORKER,
    SEVERAL_HOSTS,
    THREADED,
    TURNS,
    KindError,
    error_of,
    read_errors,
)
from lockstep.advisor.spreads import spread_beyond_ordinary
from lockstep.engine.declared import Chain
from lockstep.predict.cost_model import chain_of_sync
from lockstep.predict.link_model import AlphaBeta

ONE_ROUND_SPREAD = 0.10
"""Of a calibration that was cut short after its first round, which shows no spread: assumed."""
COMPUTING, CROWDING, EXCHANGE, OPTIMIZER = "computing", "crowding", "exchange", "optimizer"
TAKING_TURNS, INPUT, LINK = "taking turns", "input", "link"
TIME_SLICE_SECONDS = 3e-3
"""What a process keeps a core for while another wants it: assumed, of the order that Linux's schedulers give.
Only ranks that take turns are predicted by it."""
SENDERS_AWAY = 0.7
"""Chosen, not derived: so that predictions meet what notebook 05 had stored of two emulated hosts of two ranks on two
cores, and a small network measured likewise. These cells are no test of it; notebook 13's emulated hosts are."""

SENDING = (LIKE_ALLREDUCE, "ddp")
"""Syncs of two workers that show what sending costs a core."""


class Predictor:
    """Predicts steps from one calibration. `errors`: of each kind of cell; None: those that were measured.

    Raises CalibrationError for a calibration without a step of one worker.
    """

    def __init__(self, calibration: Calibration, errors: Mapping[str, KindError] | None = None) -> None:
        self.calibration = calibration
        self.errors = read_errors() if errors is None else errors
        self.middle = coefficients(calibration)
        self._rounds = [coefficients(calibration, number) for number in range(rounds_of(calibration))]

    def terms(
        self, sync: str, workers: int, hosts: int, batch: int, threads: int = 1, link: AlphaBeta | None = None,
        *, emulated: bool = False,
    ) -> dict[str, float]:  # fmt: skip
        """Seconds of a step, by what takes them. `batch`: images of the largest share. Raises CalibrationError for a
        sync or threads that were not calibrated, and for several hosts without a link."""
        return _terms(self.middle, sync, workers, hosts, batch, threads, link, emulated)

    def step_seconds(
        self, sync: str, workers: int, hosts: int, batch: int, threads: int = 1, link: AlphaBeta | None = None,
        *, emulated: bool = False,
    ) -> Span:  # fmt: skip
        """The seconds of a step, with the range that they lie in. Raises as `terms` does."""
        middle = sum(_terms(self.middle, sync, workers, hosts, batch, threads, link, emulated).values())
        each = self.by_round(sync, workers, hosts, batch, threads, link, emulated=emulated)
        kind = kind_of_cell(self.calibration, sync, workers, hosts, batch, threads, emulated=emulated)
        return ranged(middle, each, error_of(kind, self.errors), spread_beyond_ordinary(self.calibration, batch))

    def by_round(
        self, sync: str, workers: int, hosts: int, batch: int, threads: int = 1, link: AlphaBeta | None = None,
        *, emulated: bool = False,
    ) -> list[float]:  # fmt: skip
        """The seconds of a step as each round of the calibration alone predicts them. Raises as `terms` does."""
        asked = (sync, workers, hosts, batch, threads, link, emulated)
        return [sum(_terms(one, *asked).values()) for one in self._rounds]


def ranged(middle: float, by_round: list[float], error: KindError, of_steps: float = 0.0) -> Span:
    """The range around `middle`: the error of its kind, widened in quadrature by what the rounds leave open beyond
    what that error holds already, and by how much single steps differ beyond the ordinary (`of_steps`)."""
    if not middle > 0:
        return Span(0.0, 0.0, 0.0)
    spread = math.hypot(_beyond(by_round, error), of_steps)
    low = error.low - (math.hypot(error.low, spread) - abs(error.low))
    high = error.high + math.hypot(error.high, spread) - abs(error.high)
    return Span(min(middle * math.exp(low), middle), middle, max(middle * math.exp(high), middle))


def _beyond(by_round: list[float], error: KindError) -> float:
    """`mean_error` without the part that the error of the kind holds; all of it for one round, which is assumed."""
    held = error.calibration_spread if len(by_round) > 1 else 0.0
    return math.sqrt(max(0.0, mean_error(by_round) ** 2 - held**2))


def mean_error(by_round: list[float]) -> float:
    """How far, as a logarithm, the mean of few rounds may be off, nine times out of ten (Student's t)."""
    logs = [math.log(value) for value in by_round if value > 0]
    if len(logs) < 2:
        return ONE_ROUND_SPREAD
    from scipy.special import stdtrit  # most of the time that importing this file would take

    return float(stdtrit(len(logs) - 1, 0.95)) * stdev(logs, fmean(logs)) / math.sqrt(len(logs))


def kind_of_cell(
    calibration: Calibration, sync: str, workers: int, hosts: int, batch: int, threads: int = 1,
    *, emulated: bool = False,
) -> str:  # fmt: skip
    """The kind of cell that an error is known of: `as calibrated`, or `one worker`, `a core each`, `turns on a core`,
    `several hosts` (and whether their ranks take turns), with `, another batch` where none of its kind had this one."""
    cells = calibration.cells
    alike = [cell for cell in cells if (cell.workers > 1) == (workers > 1) and (workers == 1 or cell.sync == sync)]
    if hosts == 1 and any(
        (cell.workers, cell.per_worker_batch_size, cell.threads_per_worker) == (workers, batch, threads)
        for cell in alike
    ):
        return AS_CALIBRATED
    other = "" if any(cell.per_worker_batch_size == batch for cell in alike) else ANOTHER_BATCH
    if workers == 1:
        return ONE_WORKER + other
    here = workers if emulated else math.ceil(workers / hosts)
    turns = here * threads > places(calibration)
    if hosts > 1:
        threaded = threads > 1 and not any(cell.threads_per_worker == threads for cell in alike)
        return SEVERAL_HOSTS + (THREADED if threaded else "") + (f", {TURNS}" if turns else "") + other
    return (TURNS if turns else A_CORE_EACH) + other


def _terms(
    known: Coefficients, sync: str, workers: int, hosts: int, batch: int, threads: int, link: AlphaBeta | None,
    emulated: bool,
) -> dict[str, float]:  # fmt: skip
    costs = known.costs(sync if workers > 1 else ALONE, threads)
    here = workers if emulated else math.ceil(workers / hosts)  # that share this machine's cores
    turns = costs.turns(here)
    alone, team = costs.compute_seconds(batch), known.team(sync, threads) if workers > 1 else None
    added, factor = (team.added_seconds, team.factor) if team else (0.0, 1.0)
    if here == 1:  # a team that crowded each other less than cores for themselves says nothing of a worker by itself
        factor = max(1.0, factor)
    one_turn = {
        COMPUTING: alone + added,
        CROWDING: factor * costs.compute_seconds(batch, here) / turns - alone,
        EXCHANGE: _exchange(known, sync, workers, hosts, threads),
        OPTIMIZER: _update(known, sync, workers, math.ceil(workers / hosts), threads),
    }
    waited = _link_seconds(known, sync, workers, hosts, threads, link)
    met = TIME_SLICE_SECONDS if workers > 1 and has_one_copy(sync) else 0.0
    decoding = turns * known.decode_seconds * batch / threads
    return one_turn | {
        TAKING_TURNS: (turns - 1) * (sum(one_turn.values()) + met) + SENDERS_AWAY * (1 - 1 / turns) * waited,
        INPUT: max(0.0, decoding - waited),
        LINK: waited,
    }


def _exchange(known: Coefficients, sync: str, workers: int, hosts: int, threads: int) -> float:
    """Seconds of a turn in which this machine's cores exchange."""
    if workers == 1:
        return 0.0
    costs, team, of_host = known.costs(sync, threads), known.team(sync, threads), math.ceil(workers / hosts)
    size = costs.gradient_bytes
    if hosts == 1 or not has_one_copy(sync):  # every rank sends, to those of its own host, too
        return team.byte_seconds * chain_of_sync(chain_name(sync), workers, size).bytes
    inside = team.byte_seconds * chain_of_sync(sync, of_host, size).bytes
    # Each rank sends its slice, and all of a host go through one stack of protocols.
    return inside + _sending_byte_seconds(known, threads) * _between_hosts(sync, workers, hosts, size).bytes


def shows_sending(known: Coefficients) -> bool:
    """Whether the calibration shows what sending costs a core."""
    return any(sync in SENDING for sync, _ in known.teams)


def _sending_byte_seconds(known: Coefficients, threads: int) -> float:
    """Of a core that sends and receives a byte of a sum. Raises CalibrationError without an all-reduce or DDP."""
    for name in SENDING:
        if any(sync == name for sync, _ in known.teams):
            return known.team(name, threads).byte_seconds
    raise CalibrationError("no all-reduce of two processes was calibrated, which shows what sending costs a core")


def _update(known: Coefficients, sync: str, workers: int, of_host: int, threads: int) -> float:
    if workers == 1:
        return known.update_seconds[threads]
    each = known.team(sync, threads).update_seconds
    return each * 2 / of_host if has_one_copy(sync) else each


def _between_hosts(sync: str, workers: int, hosts: int, size: float) -> Chain:
    return chain_of_sync(chain_name(sync), workers, size, hosts=hosts)


def _link_seconds(
    known: Coefficients, sync: str, workers: int, hosts: int, threads: int, link: AlphaBeta | None
) -> float:
    if hosts == 1:
        return 0.0
    if link is None:
        raise CalibrationError(f"{hosts} hosts need the link between them; give --link 10gbit or --link 25us,1.2e9")
    return link.seconds_of(_between_hosts(sync, workers, hosts, known.costs(sync, threads).gradient_bytes))
