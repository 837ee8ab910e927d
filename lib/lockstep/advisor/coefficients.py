"""What a calibration says of the seconds of a step, as parameters of the cost model (`lockstep.predict.cost_model`).

    step = T x [ factor x (fixed + image x b x (1 + crowding x (busy - 1)))
               |                                                     Costs.compute_seconds: one worker at two batches,
               |                                                     and all cores at once, each for itself (NOTHING)
               + added                                               a team's worker moves its gradients to where the
               |                                                     others see them
               + byte x bytes of the longest chain                   Costs.exchange_seconds
               + update (/ workers of the host, with one copy)       the optimizer
               + decode x b / cores of the worker ]                  on the cores that compute; waiting hides it
         + link                                                      between hosts: its messages and bytes

    T     workers that take turns on the fullest core
    factor, added, byte, update: of each sync, from the cells of its two workers, which are so reproduced exactly

What two workers compute longer than cores for themselves is `added` as far as an optimizer step of one worker goes, for
that passes over more memory than moving the gradients does; the rest grows with the batch: it is in the `factor`. What
an exchange inside the backward pass takes (DDP) can't be told from computing: it is `byte`, up to HIDDEN times what an
all-reduce that is timed apart takes for a byte.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from lockstep.advisor.calibration import NOTHING, Calibration, CalibrationCell, CalibrationError
from lockstep.engine import registry
from lockstep.predict.cost_model import Costs, chain_of_sync, priced

ALONE = "local"
LIKE_ALLREDUCE = "allreduce"
"""What a sync exchanges whose file declares no chain, such as DDP: the sum of all gradients."""
HIDDEN = 1.25
"""A byte inside the backward pass is taken to cost at most so many times one that is exchanged after it: chosen, not
derived. Without a bound, a noisy round makes an exchange out of slow computing."""


@functools.cache
def chain_name(sync: str) -> str:
    """The sync whose declared chain counts for `sync`."""
    return sync if sync in priced() else LIKE_ALLREDUCE


@dataclass(frozen=True)
class TeamCosts:
    """What two workers that agree by one sync pay besides computing, each with a core (or its threads) of its own."""

    factor: float  # of computing, over that of cores that train for themselves
    added_seconds: float  # per step and turn
    byte_seconds: float  # of the longest chain
    update_seconds: float  # of an optimizer step, by one of the two


@dataclass(frozen=True)
class Coefficients:
    """The parameters of one model on one machine; of the medians over rounds, or of one round."""

    alone: Mapping[int, Costs]  # by threads of a worker; workers of one core each crowd each other
    update_seconds: Mapping[int, float]  # by threads of a worker: of one worker alone
    teams: Mapping[tuple[str, int], TeamCosts]  # by sync and threads of a worker
    decode_seconds: float  # of an image

    def costs(self, sync: str, threads: int) -> Costs:
        """Computing and exchanging of a team. Raises CalibrationError for what was not calibrated."""
        if threads not in self.alone:
            known = ", ".join(map(str, sorted(self.alone)))
            raise CalibrationError(f"{threads} threads per worker were not calibrated; there are: {known}")
        base = self.alone[threads]
        if sync == ALONE:
            return base
        return replace(base, byte_seconds={sync: self.team(sync, threads).byte_seconds})

    def team(self, sync: str, threads: int) -> TeamCosts:
        """Of as many threads per worker, or else of those that were calibrated. Raises CalibrationError."""
        found = self.teams.get((sync, threads)) or next((t for (s, _), t in self.teams.items() if s == sync), None)
        if found is None:
            known = ", ".join(dict.fromkeys(name for name, _ in self.teams)) or "none"
            raise CalibrationError(f"two workers with sync={sync!r} were not calibrated; calibrated: {known}")
        return found


def coefficients(calibration: Calibration, only_round: int | None = None) -> Coefficients:
    """From the medians over rounds, or from one round alone. Raises CalibrationError without a cell of one worker."""
    cells = calibration.cells
    single = [cell for cell in cells if cell.workers == 1]
    if not single:
        raise CalibrationError("the calibration holds no step of one worker alone; measure it anew")
    lines: dict[int, Costs] = {}
    updates: dict[int, float] = {}
    for threads in sorted({cell.threads_per_worker for cell in single}):
        own = [cell for cell in single if cell.threads_per_worker == threads]
        fixed, image = _line([(cell.per_worker_batch_size, _computing(cell, only_round)) for cell in own])
        if len({cell.per_worker_batch_size for cell in own}) == 1 and lines:  # as the worker of one thread has it
            base = next(iter(lines.values()))
            share = base.fixed_seconds / base.compute_seconds(own[0].per_worker_batch_size)
            whole = _computing(own[0], only_round)
            fixed, image = share * whole, (1 - share) * whole / own[0].per_worker_batch_size
        cores = max(1.0, places(calibration) / threads)
        lines[threads] = Costs(fixed, image, 0.0, {}, calibration.model.gradient_bytes, cores)
        updates[threads] = median(_at(cell.update_seconds, only_round) for cell in own)
    crowd = _crowding(cells, lines, only_round)
    alone = {threads: replace(costs, crowding=crowd * threads) for threads, costs in lines.items()}
    teams: dict[tuple[str, int], TeamCosts] = {}
    ways = dict.fromkeys((cell.sync, cell.threads_per_worker) for cell in cells if _is_team(cell))
    for sync, threads in sorted(ways, key=lambda way: way[0] != LIKE_ALLREDUCE):
        own = [cell for cell in cells if _is_team(cell) and (cell.sync, cell.threads_per_worker) == (sync, threads)]
        if threads in alone:
            most = HIDDEN * teams[LIKE_ALLREDUCE, threads].byte_seconds if (LIKE_ALLREDUCE, threads) in teams else None
            found = [_team(cell, alone[threads], updates[threads], most, only_round) for cell in own]
            teams[sync, threads] = TeamCosts(*(median(getattr(one, name) for one in found) for name in _OF_TEAM))
    decode = _at(calibration.decode_seconds_per_image, only_round) if calibration.decode_seconds_per_image else 0.0
    return Coefficients(alone, updates, teams, decode)


_OF_TEAM = ("factor", "added_seconds", "byte_seconds", "update_seconds")


def _is_team(cell: CalibrationCell) -> bool:
    return cell.workers > 1 and cell.sync not in (NOTHING, ALONE)


def _at(values: Sequence[float], only_round: int | None) -> float:
    """The median, or the value of one round (of the last one there is)."""
    if not values:
        raise CalibrationError("a cell of the calibration holds no round; measure it anew, and for longer")
    return median(values) if only_round is None else values[min(only_round, len(values) - 1)]


def _computing(cell: CalibrationCell, only_round: int | None) -> float:
    """Seconds of a step but for exchange and optimizer: the two passes, and what stands around them."""
    step, *others = (
        _at(values, only_round) for values in (cell.step_seconds, cell.exchange_seconds, cell.update_seconds)
    )
    return max(0.0, step - sum(others))


def _line(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """(fixed, per image), both at least 0, through the smallest and the largest batch; exact at the largest. Of several
    cells with one batch their median counts."""
    of_batch = {batch: median(seconds for own, seconds in points if own == batch) for batch, _ in points}
    few, many = min(of_batch), max(of_batch)
    less, more = of_batch[few], of_batch[many]
    if many == few:
        return 0.0, more / many
    image = min(max(0.0, (more - less) / (many - few)), more / many)
    return more - image * many, image


def _crowding(
    cells: Sequence[CalibrationCell], lines: Mapping[int, Costs], only_round: int | None
) -> float:
    """How much longer an image takes for every further busy core, from workers that train each for itself; without
    such cells from teams whose exchange is timed apart from computing."""
    apart = [cell for cell in cells if cell.sync == NOTHING and cell.workers > 1]
    found = []
    for cell in apart or [cell for cell in cells if _is_team(cell) and any(cell.exchange_seconds)]:
        if cell.threads_per_worker in lines:
            own = lines[cell.threads_per_worker]
            turns, others = own.turns(cell.workers), own.busy_cores(cell.workers) - 1
            images = own.image_seconds * cell.per_worker_batch_size
            if others > 0 and images:
                each = _computing(cell, only_round) / turns - own.fixed_seconds
                found.append((each / images - 1) / (others * cell.threads_per_worker))
    return max(0.0, median(found)) if found else 0.0


def _team(
    cell: CalibrationCell, alone: Costs, update_alone: float, most: float | None, only_round: int | None
) -> TeamCosts:
    """What the cell of a team shows. Per turn of its workers, should they have to take turns. `most`: seconds of a byte
    that an exchange inside the backward pass may take."""
    turns = alone.turns(cell.workers)
    chain = chain_of_sync(chain_name(cell.sync), cell.workers, alone.gradient_bytes)
    exchange, update = _at(cell.exchange_seconds, only_round), _at(cell.update_seconds, only_round)
    apart = alone.compute_seconds(cell.per_worker_batch_size, cell.workers)
    longer = _computing(cell, only_round) - apart
    if not exchange:  # it is hidden in the passes
        exchange = max(0.0, longer if most is None else min(longer, turns * most * chain.bytes))
        longer -= exchange
    added = min(max(0.0, longer), turns * update_alone)
    factor = 1 + (longer - added) / apart if apart else 1.0
    each = exchange / turns / chain.bytes if chain.bytes else 0.0
    of_two = cell.workers / 2 if has_one_copy(cell.sync) else 1.0
    return TeamCosts(factor, added / turns, each, update / turns * of_two)


def has_one_copy(sync: str) -> bool:
    """Whether parameters and optimizer state stand once on a host, so that its workers share the optimizer's work."""
    declared = registry.sync_of(sync)
    return declared is not None and declared.one_copy_per_host


def places(calibration: Calibration) -> int:
    """Workers of one thread that a machine computes at the same time: as many as it has cores, or GPUs, of which none
    but those that were calibrated are known."""
    machine = calibration.machine
    return machine.cores if machine.device == "cpu" else max(cell.workers for cell in calibration.cells)


def rounds_of(calibration: Calibration) -> int:
    """The rounds that every cell of the calibration holds."""
    return min((len(cell.step_seconds) for cell in calibration.cells), default=0)
