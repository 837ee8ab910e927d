"""Pruners compared on the same curves: studies over a pool of trained settings, replayed in virtual time.

    order of settings (seed) ->  waiting  2 7 4 ...
                                    |  whoever is free takes the next one
    worker 0   |--setting 5--|--|--|X           X: the pruner stops it
    worker 1   |-setting 0-|-|-|-|-|-|-|-|-> finished
               0                         virtual seconds, each setting with its measured epoch seconds

After each epoch the score is reported to a real Optuna study and the pruner's own object is asked, Optuna's or ours.
After its last epoch a trial is finished and no pruner is asked. Where the pool has NaN the trial fails. Orders depend
on the seed alone, so pruners and numbers of workers are paired by seed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from optuna.pruners import BasePruner
from optuna.trial import TrialState

from lockstep.engine.options import at_least
from lockstep.tuning.asking import Forecasts, make
from lockstep.tuning.forecasting import Forecaster
from lockstep.tuning.lean import LeanStudy, ReplayedStudy
from lockstep.tuning.pool import CurvePool
from lockstep.tuning.pool_forecasts import for_pool
from lockstep.tuning.pruners import PRUNERS, make_pruner, parse_pruner

_ROUNDING = 1e-12
MakeStudy = Callable[[BasePruner, str], ReplayedStudy]


@dataclass(frozen=True, eq=False)
class Replayed:
    """What one replayed study gave.

    share_of_epochs: epochs computed over those that the same trials compute without pruning. kept_best: whether the
    best finished trial ends within one validation image of the best drawn setting. regret: by how much it ends lower,
    in score; the best drawn setting's whole score where no trial finished. seconds: of virtual time until the last
    trial ended. settings: the places in the pool of trials 0, 1, ..., [trials]. stopped: the epochs that each of them
    computed, [trials]. finished: which of them were trained to the end, [trials].
    """

    share_of_epochs: float
    kept_best: bool
    regret: float
    seconds: float
    settings: NDArray[np.intp]
    stopped: NDArray[np.intp]
    finished: NDArray[np.bool_]


def replay(
    pool: CurvePool,
    pruner: BasePruner,
    workers: int,
    trials_per_study: int,
    seed: int,
    tolerance: float | None = None,
    study: MakeStudy = LeanStudy,
) -> Replayed:
    """One study of `trials_per_study` settings of the pool, in the order of `seed`, by `workers` virtual workers.

    `pruner` is one that no other study has asked. `tolerance`: the score that counts as no difference, the pool's own
    if None. `study` makes what is told of the trials. Raises JobError for workers below 1 and as `CurvePool.drawn`.
    """
    at_least("workers", workers, 1)
    settings = pool.drawn(trials_per_study, seed)
    run = _Run(pool.values[settings], pool.epoch_seconds[settings], study(pruner, f"replay {seed}"))
    seconds = run.all(workers)
    best, ends = _best(run.values[:, -1]), run.values[run.finished, -1]
    regret = best - (_best(ends) if len(ends) else 0.0)
    allowed = pool.tolerance if tolerance is None else tolerance
    return Replayed(
        share_of_epochs=float(run.stopped.sum() / _lengths(run.values).sum()),
        kept_best=bool(len(ends)) and regret <= allowed + _ROUNDING,
        regret=regret,
        seconds=seconds,
        settings=settings,
        stopped=run.stopped,
        finished=run.finished,
    )


def replays(
    pool: CurvePool,
    pruner: str,
    workers: int,
    trials_per_study: int,
    seeds: Iterable[int],
    tolerance: float | None = None,
    forecaster: Forecasts | None = None,
) -> pd.DataFrame:
    """`replay` once per seed with the pruner of a text. One row per seed: pruner, workers, trials, seed,
    share_of_epochs, kept_best, regret, seconds, finished (number of trials).

    The seed is also the pruner's, so that the trials that are never pruned change from order to order. All studies ask
    one forecaster in turn: `forecaster`, or else the one that the text names; it is asked once about each prefix of the
    pool (`lockstep.tuning.pool_forecasts`), unless it learns its weights anew from each study. Raises
    JobError as `replay` and `make_pruner` do.
    """
    asked = forecasts_for(pruner, forecaster, pool)
    rows = []
    for seed in seeds:
        fresh = make_pruner(pruner, pool.epochs, seed, asked)
        found = replay(pool, fresh, workers, trials_per_study, seed, tolerance)
        numbers = (found.share_of_epochs, found.kept_best, found.regret, found.seconds, int(found.finished.sum()))
        rows.append((pruner, workers, trials_per_study, seed, *numbers))
    return pd.DataFrame(rows, columns=list(COLUMNS))


COLUMNS = ("pruner", "workers", "trials", "seed", "share_of_epochs", "kept_best", "regret", "seconds", "finished")


def trains_in_each_study(pruner: str) -> bool:
    """Whether the forecaster of a text trains its weights on each study's finished curves. One replay of 30 trials then
    takes seconds in place of some 10 ms, so fewer orders can be replayed. Raises JobError as `parse_pruner` does, and
    for a forecaster that does not exist."""
    name, options = parse_pruner(pruner)
    named = PRUNERS[name].forecaster_of(options)
    return bool(named) and isinstance(found := make(named), Forecaster) and found.learns


def forecasts_for(pruner: str, forecaster: Forecasts | None, pool: CurvePool) -> Forecasts | None:
    """The forecaster of a text, which does not compute a forecast twice; None for a pruner without one."""
    name, options = parse_pruner(pruner)
    named = PRUNERS[name].forecaster_of(options)
    if not named:
        return None
    return for_pool(forecaster if forecaster is not None else make(named), pool)


class _Run:
    """The trials of one study, in the order in which they begin."""

    def __init__(self, values: NDArray[np.float64], epoch_seconds: NDArray[np.float64], study: ReplayedStudy) -> None:
        self.values = values
        self.stopped = np.zeros(len(values), dtype=np.intp)
        self.finished = np.zeros(len(values), dtype=bool)
        self._rows: list[list[float]] = values.tolist()
        self._seconds: list[float] = epoch_seconds.tolist()
        self._study = study

    def all(self, workers: int) -> float:
        """Runs all trials and returns the virtual seconds until the last one ended. Of epochs that end at the same
        time, that of the earlier trial is told first."""
        waiting = iter(range(len(self._rows)))
        epochs: list[tuple[float, int]] = []  # a heap: when the epoch that runs ends, and of which trial it is
        now = 0.0
        for _ in range(min(workers, len(self._rows))):
            self._begin(epochs, now, next(waiting))
        while epochs:
            now, trial = heapq.heappop(epochs)
            if self._goes_on(trial):
                heapq.heappush(epochs, (now + self._seconds[trial], trial))
            elif (following := next(waiting, None)) is not None:
                self._begin(epochs, now, following)
        return now

    def _begin(self, epochs: list[tuple[float, int]], now: float, trial: int) -> None:
        self._study.begin()
        heapq.heappush(epochs, (now + self._seconds[trial], trial))

    def _goes_on(self, trial: int) -> bool:
        """Whether a trial trains another epoch after the one that has just ended."""
        curve = self._rows[trial]
        epoch = int(self.stopped[trial]) + 1
        self.stopped[trial], value = epoch, curve[epoch - 1]
        if value != value:  # NaN
            self._study.stopped(trial, TrialState.FAIL)
            return False
        if epoch == len(curve):
            self._study.finished(trial, epoch, value)
            self.finished[trial] = True
            return False
        if self._study.reported(trial, epoch, value):
            self._study.stopped(trial, TrialState.PRUNED)
            return False
        return True


def _best(ends: NDArray[np.float64]) -> float:
    """The best of some final scores; 0, the lowest score, where all failed."""
    known = ends[~np.isnan(ends)]
    return float(known.max()) if len(known) else 0.0


def _lengths(values: NDArray[np.float64]) -> NDArray[np.intp]:
    """The epochs that each trial computes without pruning, [trials]: to the end, or to its first NaN."""
    failed = np.isnan(values)
    return np.where(failed.any(axis=1), failed.argmax(axis=1) + 1, values.shape[1])
