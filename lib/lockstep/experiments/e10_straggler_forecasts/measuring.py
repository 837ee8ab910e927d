"""What notebook 10's cells in virtual time compute, and the cost of forecasting on this machine.

A forecaster is walked through a world: before each round it says what every worker's next task will take, and then it
is told. `lockstep.engine.forecasts.scores` says how good that was.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import MethodType
from typing import Any, cast

import numpy as np

from lockstep.engine.delays import make_delays
from lockstep.engine.forecasts import Forecast, make_forecast
from lockstep.engine.forecasts.lstm import Lstm
from lockstep.engine.forecasts.scores import (
    EARLY,
    LATER,
    calibration,
    detection,
    mean_absolute_error,
    onsets,
    stragglers,
    walk,
)
from lockstep.engine.groups import Group
from lockstep.engine.job import Job
from lockstep.engine.policies import Policy, Setting, policy_of
from lockstep.engine.training.loop import Site, Trace
from lockstep.engine.usecases import Source
from lockstep.experiments.e10_straggler_forecasts.causes import run_input_parts, run_vanishing
from lockstep.experiments.e10_straggler_forecasts.forecasters import (
    BINS,
    DECIDING,
    DRAWN,
    DRAWN_ROUNDS,
    FORECASTERS,
    LEARNING_CURVES,
    LSTM,
    QUANTILES,
    TRAINED,
    TRAINING_STEPS,
    WITH_STATE,
)
from lockstep.experiments.e10_straggler_forecasts.grid import (
    COSTS,
    FORECASTS,
    INPUT_PARTS,
    KINDS,
    SLOW_LOADING,
    TRACE_OF,
    TRACED,
    VANISHING,
)
from lockstep.experiments.e10_straggler_forecasts.worlds import (
    FOLDER,
    MICRO_BATCHES,
    STEPS,
    Array,
    World,
    earlier_worlds,
    recorded_worlds,
    simulated_world,
    trace_file,
)
from lockstep.measure.probes.probe import Probe, Probes
from lockstep.predict.cost_model import Costs
from lockstep.predict.link_model import AlphaBeta
from lockstep.simulate import Cluster, Until, simulate

Row = dict[str, Any]
_PERIODS = {"early": EARLY, "later": LATER}
_CELL = ("delays", "seed")
_WARM_UP_ROUNDS = 20


def run_forecasts(job: Job, group: Group, site: Site | None = None) -> Trace:
    """Every forecaster in the world of this seed: tables `forecasts`, `histories`, and of the first seed `examples`."""
    del site
    group.enter("compute")
    world = simulated_world(job.delays, job.workers, job.steps, job.seed)
    found: dict[str, list[Row]] = {"forecasts": [], "histories": []}
    said = _walked(world, job.seed, earlier_worlds(job.delays, job.workers, job.steps, job.seed))
    for (name, state), forecasts in said.items():
        who = {"forecaster": name, "state": state}
        found["forecasts"] += [who | row for row in score_rows(world, forecasts)]
        if name in LEARNING_CURVES and state == "none":
            found["histories"] += [who | row for row in history_rows(world, forecasts[..., 1])]
    if job.seed == 0 and job.delays in (KINDS[kind] for kind in DRAWN):
        found["examples"] = example_rows(world, {name: each[..., 1] for (name, _), each in said.items()})
    return Trace(group.rank, scores={"step_seconds": float(np.nanmean(world.seconds.max(axis=1)))}, tables=found)


def run_traces(job: Job, group: Group, site: Site | None = None) -> Trace:
    """Every forecaster on the recorded run that `job.delays` names: the table `trace_forecasts`, by unit and stage."""
    assert site is not None and site.data_root is not None
    rows: list[Row] = []
    for unit in (STEPS, MICRO_BATCHES):
        for stage, world in enumerate(recorded_worlds(site.data_root, TRACE_OF[job.delays], unit)):
            group.enter("compute")
            for (name, _), said in _walked(world, job.seed).items():
                row = {"forecaster": name, "unit": unit, "stage": stage}
                rows.append(row | part_row(world, said, slice(None)) | _memory(world))
    return Trace(group.rank, tables={"trace_forecasts": rows})


def run_slow_loading(job: Job, group: Group, site: Site | None = None) -> Trace:
    """What slow loading costs all: the table `slow_loading`, one row, beside the same work without any delays."""
    del site
    group.enter("compute")
    slow, usual = (simulated_world(text, job.workers, job.steps, job.seed) for text in (job.delays, "none"))
    stretched = slow.seconds / slow.work
    loads_slowly = stretched > (1.0 + stretched.max()) / 2
    behind = stragglers(slow.seconds)
    row: Row = {
        "slow_share": float(loads_slowly.mean()),
        "stragglers_of_slow": float(behind[loads_slowly].mean()) if loads_slowly.any() else float("nan"),
        "stragglers_of_others": float(behind[~loads_slowly].mean()),
        "worker_seconds": float(slow.seconds.mean()),
        "usual_worker_seconds": float(usual.seconds.mean()),
        "step_seconds": float(slow.seconds.max(axis=1).mean()),
        "usual_step_seconds": float(usual.seconds.max(axis=1).mean()),
    }
    return Trace(group.rank, scores={"step_seconds": row["step_seconds"]}, tables={"slow_loading": [row]})


def run_forecast_costs(job: Job, group: Group, site: Site | None = None) -> Trace:
    """Milliseconds of this processor for each round of eight workers: the table `forecast_costs`, per forecaster, and
    per policy that decides by one."""
    del site
    rows: list[Row] = []
    world = simulated_world(KINDS["periodic"], 8, job.steps, job.seed)
    for name, text in FORECASTERS.items():
        group.enter("compute")
        made = [Timed(_forecaster(text, world, job.seed)) for _ in range(2)]
        # The first one imports and allocates what forecasters have in common.
        for timed, seconds in zip(made, (world.seconds[:_WARM_UP_ROUNDS], world.seconds), strict=True):
            walk(cast(Forecast, timed), seconds, QUANTILES)
        rows.append({"forecaster": name} | _milliseconds(made[1], job.steps))
    for name, options in DECIDING.items():
        group.enter("compute")
        rows.append({"forecaster": name} | _deciding(name, options, job))
    whole = sum(row["asking_milliseconds"] + row["training_milliseconds"] for row in rows) / 1e3
    return Trace(group.rank, scores={"step_seconds": whole}, tables={"forecast_costs": rows})


def _milliseconds(timed: Timed, rounds: int) -> Row:
    spent = {"asking": timed.asking, "training": timed.training}
    return {f"{what}_milliseconds": 1e3 * seconds / rounds for what, seconds in spent.items()}


def _deciding(name: str, options: str, job: Job) -> Row:
    """What a policy's server spends on deciding in each update of eight workers of 12 images in three micro-batches,
    forecasting included: event by event, as on real ranks."""
    setting = Setting(8, 9600, 96, 4, seed=job.seed)
    for updates in (_WARM_UP_ROUNDS, job.steps):
        timed = Timed(policy_of(name, options, setting))
        cluster = Cluster(8, Costs(0.0, 0.1 / 12, 0.0, gradient_bytes=1.0), AlphaBeta(0.0, 1e-3))
        delays = make_delays(KINDS["periodic"], 8, job.seed)
        simulate(cast(Policy, timed), cluster, delays, Until(updates=updates), path="events")
    return _milliseconds(timed, job.steps)


class Timed:
    """A forecaster or a policy that notes the processor time of its calls: `training` of those to `idle`, `asking` of
    all others, in seconds."""

    def __init__(self, timed: Forecast | Policy) -> None:
        self._timed, self.asking, self.training = timed, 0.0, 0.0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._timed, name)
        if not isinstance(found, MethodType):
            return found

        def call(*values: Any) -> Any:
            began = time.process_time()
            said = found(*values)
            spent = time.process_time() - began
            if name == "idle":
                self.training += spent
            else:
                self.asking += spent
            return said

        return call


# Walking, and what is said of it


def _walked(world: World, seed: int, earlier: Sequence[World] = ()) -> dict[tuple[str, str], Array]:
    """By forecaster and the state of the system that it is told: [rounds, workers, QUANTILES]. With `earlier` worlds
    also the forecaster that is trained on them beforehand."""
    gap, found = world.after_a_gap(), {}
    told: list[Mapping[str, Array]] = [{}, world.system] if world.system else [{}]
    for system in told:
        for name in (*FORECASTERS, *((TRAINED,) if earlier else ())):
            if system and name not in WITH_STATE:
                continue
            made = _forecaster(FORECASTERS.get(name, FORECASTERS[LSTM]), world, seed)
            if name == TRAINED:
                assert isinstance(made, Lstm)
                runs = [run for each in earlier for run in each.runs(bool(system))]
                made.pretrain(runs, seed, TRAINING_STEPS)
            said = walk(made, world.seconds, QUANTILES, system)
            said[gap] = np.nan
            found[name, " and ".join(system) or "none"] = said
    return found


def _forecaster(text: str, world: World, seed: int) -> Forecast:
    seconds = world.seconds
    return make_forecast(text, seconds.shape[1], seed, lambda worker, task: float(seconds[task, worker]))


def score_rows(world: World, said: Array) -> list[Row]:
    """A row for each period, early and later. `said`: [rounds, workers, QUANTILES]."""
    return [{"period": name} | part_row(world, said, part) for name, part in _PERIODS.items()]


def part_row(world: World, said: Array, part: slice) -> Row:
    """Error, stragglers, onsets and calibration of the rounds `part`; NaN where something is not defined."""
    seconds, forecasts = world.seconds[part], said[part]
    middle = forecasts[..., QUANTILES.index(0.5)]
    found, coming = detection(seconds, middle), onsets(seconds, middle)
    row: Row = {"mean_absolute_error": mean_absolute_error(seconds, middle), "base_rate": found.base_rate}
    row |= {"straggler_precision": found.precision, "straggler_recall": found.recall, "f1": found.f1}
    row["average_precision"] = found.average_precision
    row |= {"onsets": coming.count, "onset_recall": coming.recall, "lead_rounds": coming.lead_rounds}
    row |= {"chance": coming.chance}
    shares = calibration(seconds, forecasts)
    return row | {f"below_{quantile:g}": float(share) for quantile, share in zip(QUANTILES, shares, strict=True)}


def history_rows(world: World, middle: Array) -> list[Row]:
    """The mean absolute error by how many rounds had been seen. `middle`: [rounds, workers]."""
    rows = []
    for first, end in zip(BINS, (*BINS[1:], None), strict=True):
        error = mean_absolute_error(world.seconds[first:end], middle[first:end])
        rows.append({"seen_rounds": first, "mean_absolute_error": error})
    return rows


def example_rows(world: World, middles: Mapping[str, Array]) -> list[Row]:
    """What some forecasters said of worker 0, and what came, in the last rounds."""
    rows = []
    for name in ("seen", *LEARNING_CURVES):
        values = world.seconds if name == "seen" else middles[name]
        tasks = range(max(0, len(values) - DRAWN_ROUNDS), len(values))
        rows += [{"forecaster": name, "task": task, "seconds": float(values[task, 0])} for task in tasks]
    return rows


def _memory(world: World) -> Row:
    """How much a worker's time says of its next: the correlation of both relative to the median of the workers."""
    relative = world.seconds / np.median(world.seconds, axis=1, keepdims=True)  # NaN in a gap, as the seconds are
    before, after = relative[:-1].ravel(), relative[1:].ravel()
    both = np.isfinite(before) & np.isfinite(after)
    flat = both.sum() < 3 or np.ptp(before[both]) == 0 or np.ptp(after[both]) == 0
    return {"memory": float("nan") if flat else float(np.corrcoef(before[both], after[both])[0, 1])}


def lacking_trace(job: Job, source: Source | None) -> str | None:
    """Why the trace can't be forecast here."""
    name = TRACE_OF[job.delays]
    if source is not None and trace_file(source.root, name).is_file():
        return None
    return f"the data folder has no {FOLDER}/{name}.parquet; data/README.md says where it is published"


def probes() -> Probes:
    """What measures the cells of this notebook."""
    forecasts = dict.fromkeys(("forecasts", "histories", "examples"), _CELL)
    return {
        FORECASTS: Probe(run_forecasts, tables=forecasts),
        TRACED: Probe(run_traces, tables={"trace_forecasts": _CELL}, lacking=lacking_trace),
        SLOW_LOADING: Probe(run_slow_loading, tables={"slow_loading": _CELL}),
        COSTS: Probe(run_forecast_costs, tables={"forecast_costs": ()}),
        VANISHING: Probe(run_vanishing, tables={"denormals": (), "gradients": ()}),
        INPUT_PARTS: Probe(run_input_parts, tables={"input_parts": ()}),
    }
