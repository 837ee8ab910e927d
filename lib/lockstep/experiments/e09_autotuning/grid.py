"""Notebook 09's cells. Each phase needs what the one before it stored, so the grid grows as a run goes on.

pool           settings drawn at random from the space, trained to the end without pruning, on held-out images
engine_counts  one fixed list of trials by one engine and by two, each of which takes its next trial from the storage
rungs          plain CNN, + dropout, + L2, + LSTM head: each trained from several seeds, scored on test images, too
finalists      the best of the pool's first settings, trained anew from several seeds; held-out images pick one
chosen         that one again, scored on test images, too: the only cell of a tuned network that opens any

    pool, engine_counts, rungs ──► finalists ──► chosen
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.analysis.stored import Stored
from lockstep.engine.job import Job
from lockstep.experiments.e09_autotuning.choice import best_of_finalists, finalists_of_pool
from lockstep.experiments.e09_autotuning.stored_pool import StoredPool, pool_of
from lockstep.experiments.experiment import Parameters
from lockstep.experiments.fixed_batch import in_memory_format, trained
from lockstep.measure.planning import Comparison
from lockstep.records.places import repository_root

NAME = "09_autotuning"
POOL, ENGINES, RUNG, FINALISTS, CHOSEN = "pool", "engine_counts", "rungs", "finalists", "chosen"
SETTINGS_PER_ROUND = 4
"""Of the pool: what a killed run may lose."""
MOST_SETTINGS = 120
"""Of a pool that nobody waits for any more: half of 102 amounts to five studies of ten trials, which an interval of
what pruners save takes; a few may diverge."""
ENGINE_ROUNDS = 14
JUDGED_SEEDS = 15
"""At least so many of the tuned network and of the plain CNN, which claims are judged by, within 2 points; finalists
and the other steps of the ladder have `seeds`."""
RUNGS: Mapping[str, Mapping[str, Any]] = {
    "plain CNN": {"network": "cnn"},
    "+ dropout": {"network": "cnn", "dropout": 0.2},
    "+ L2": {"network": "cnn", "dropout": 0.2, "weight_decay": 1e-4},
    "+ LSTM head": {"network": "convlstm", "dropout": 0.2, "weight_decay": 1e-4},
}
"""The ladder's steps, each of which adds one thing that the paper names to the step before."""


def cells(chosen: Parameters) -> list[Job]:
    """Every cell that can be measured by now, in the order of its records.

    Raises JobError for impossible parameters, and RecordError where the run folder can't be read.
    """
    jobs = [_pool_cell(chosen), *_engine_cells(chosen), *_ladder_cells(chosen)]
    found = whole_pool_of(chosen)
    if found is not None:
        finalists = finalists_of_pool(found[1], chosen.finalists, chosen.pool)
        jobs += [tuned_cell(chosen, FINALISTS, setting) for setting in finalists]
        picked = best_of_finalists(found[0].records, finalists, chosen.seeds)
        jobs += [] if picked is None else [tuned_cell(chosen, CHOSEN, picked)]
    return in_memory_format(jobs, chosen.memory_format)


def whole_pool_of(chosen: Parameters) -> tuple[Stored, StoredPool] | None:
    """What the run folder holds, once its pool has as many settings as are asked for. Raises RecordError."""
    found = pool_of(repository_root() / chosen.results / NAME)
    return found if found is not None and len(found[1].trials) >= chosen.pool else None


def _pool_cell(chosen: Parameters) -> Job:
    """Settings 0, 1, 2 … of the space, SETTINGS_PER_ROUND in each round."""
    what = {"use_case": chosen.use_case, "epochs": chosen.epochs, "scored_on": "held_out"}
    return trained("engines_shared_memory", POOL, workers=chosen.engines, **what)


def _engine_cells(chosen: Parameters) -> list[Job]:
    """The same trials by one engine and by several; `steps` are the trials of the list."""
    shared = {"use_case": chosen.use_case, "steps": chosen.timed_trials, "warmup_steps": 0}
    numbers = dict.fromkeys((1, chosen.engines))
    return [trained("processes", ENGINES, workers=number, **shared) for number in numbers]


def _ladder_cells(chosen: Parameters) -> list[Job]:
    shared = {"use_case": chosen.use_case, "epochs": chosen.ladder_epochs, "scored_on": "validation"}
    return [trained("processes", RUNG, **shared, **rung) for rung in RUNGS.values()]


def tuned_cell(chosen: Parameters, experiment: str, setting: Mapping[str, Any]) -> Job:
    """A setting of the pool, by two workers that share each batch and, if there are any, the statistics of batch
    normalization: the parameters of one worker."""
    scored_on = "validation" if experiment == CHOSEN else "held_out"
    own: dict[str, Any] = {"use_case": chosen.use_case, "epochs": chosen.epochs, "scored_on": scored_on, **setting}
    return trained("processes", experiment, sync_batch_norm=bool(own.get("batch_norm")), **own)


def planned(chosen: Parameters, jobs: Sequence[Job]) -> list[Comparison]:
    """The pool first, as a headline, until finalists can be named, and up to MOST_SETTINGS in what time is left then;
    the list of trials by one engine beside that by several; all else alone, seed after seed."""
    named = whole_pool_of(chosen) is not None
    settings = MOST_SETTINGS if named else chosen.pool
    found = []
    timed = tuple(place for place, job in enumerate(jobs) if job.experiment == ENGINES)
    for place, job in enumerate(jobs):
        if job.experiment == POOL:
            found.append(Comparison((place,), headline=not named, rounds=-(-settings // SETTINGS_PER_ROUND)))
        elif place not in timed:
            plain = job.network == "cnn" and not (job.dropout or job.weight_decay)
            judged = job.experiment == CHOSEN or (job.experiment == RUNG and plain)
            found.append(Comparison((place,), rounds=max(JUDGED_SEEDS * judged, chosen.seeds)))
    return [*found, Comparison(tuple(reversed(timed)), rounds=ENGINE_ROUNDS)] if timed else found
