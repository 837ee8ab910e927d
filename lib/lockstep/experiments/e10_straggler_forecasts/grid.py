"""Notebook 10's cells: what can be known of stragglers beforehand, in virtual time; and three causes, measured.

forecasts        rounds of synchronous training under one kind of delays, by every forecaster       (a world per seed)
traces           the same for a recorded run of somebody else's cluster
slow_loading     how far behind a worker falls whose input comes slowly, and what all lose by it
forecast_costs   what forecasting and learning cost, in time of this machine's processor
vanishing        a convolution's backward pass with ever smaller gradients, and deep networks that have them
input_parts      reading, decoding, scaling and normalising of a use case's images
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.engine.job import NO_USE_CASE, Job
from lockstep.experiments.e10_straggler_forecasts.worlds import TRACES
from lockstep.experiments.experiment import Parameters
from lockstep.experiments.simulated import simulated
from lockstep.measure.planning import Comparison

FORECASTS, TRACED, SLOW_LOADING = "forecasts", "traces", "slow_loading"
COSTS, VANISHING, INPUT_PARTS = "forecast_costs", "vanishing", "input_parts"
USE_CASE = "Pneumonia"
SEEDS, JUDGED_SEEDS = 20, 30
"""The latter of KINDS, by which claims are judged."""
FEWER_SEEDS = 5
"""Of traces, where only the LSTM differs from seed to seed, and of what is varied."""
ROUNDS = 10
"""Of what is measured."""

KINDS: Mapping[str, str] = {
    "exponential pauses": "exponential",
    "Pareto pauses": "pareto",
    "bimodal pauses": "bimodal",
    "Markov states": "markov:seconds=5",
    "groups": "groups:seconds=5",
    "slow decoding": "decoding:seconds=5",
    "periodic": "periodic",
    "drift": "drift:seconds=20",
    "bad node": "bad_node",
    "burst credits": "credits:seconds=900",
}
"""Name in tables and figures -> delays at their default rates. A task is a second of work; `seconds` is the pace: a
slow Markov state lasts 25 s in the mean, and a drifting worker moves by a twentieth of its range in 20 s."""
PAUSES = tuple(KINDS)[:3]
"""Drawn anew for each task: there is nothing to be seen coming."""
SUDDEN = ("Markov states", "groups")
"""States without a memory: they begin without a sign."""
VARIED: Mapping[str, str] = {
    "Markov states, rarely slow": "markov:enter=0.01,seconds=5",
    "Markov states, slowly changing": "markov:seconds=20",
    "Markov states, quickly changing": "markov",
    "bimodal pauses, rare": "bimodal:share=0.02",
    "bimodal pauses, frequent": "bimodal:share=0.3",
    "periodic, short": "periodic:share=0.1",
    "periodic, long periods": "periodic:seconds=4",
    "drift, fast": "drift",
}
"""The same with another share of stragglers, or another pace."""
SHARES = (0.1, 0.3, 0.6)
"""Parts of the work that are input, of which a slow worker takes three times as long."""
TRACE_OF = {f"trace:file={name}.parquet": name for name in TRACES}


def name_of(delays: str) -> str:
    """What tables and figures call these delays."""
    known = {text: name for name, text in (*KINDS.items(), *VARIED.items())}
    return known.get(delays) or TRACE_OF.get(delays, delays)


def loading(share: float) -> str:
    """The delays of slow loading, in canonical form."""
    return KINDS["slow decoding"] if share == 0.3 else f"decoding:seconds=5,share={share:g}"


def cells(chosen: Parameters) -> list[Job]:
    """Every cell of the notebook, in the order of its records."""
    rounds: dict[str, Any] = {"workers": chosen.workers, "steps": chosen.history}
    jobs = [simulated(FORECASTS, delays=text, **rounds) for text in (*KINDS.values(), *VARIED.values())]
    for text, name in TRACE_OF.items():
        jobs.append(simulated(TRACED, delays=text, workers=TRACES[name], use_case=USE_CASE))
    jobs += [simulated(SLOW_LOADING, delays=loading(share), **rounds) for share in SHARES]
    jobs.append(_measured(COSTS, chosen.cost_history))
    jobs.append(_measured(VANISHING, chosen.repetitions))
    for use_case in chosen.use_cases:
        job = Job.of("sequential", experiment=INPUT_PARTS, use_case=use_case, steps=1, warmup_steps=0)
        jobs.append(job.with_(strategy="decode"))
    return jobs


def _measured(experiment: str, steps: int) -> Job:
    """A cell on one core of this machine, without images."""
    return Job.of(
        "sequential", experiment=experiment, use_case=NO_USE_CASE, input="none", steps=steps, warmup_steps=0,
        global_batch_size=1, per_worker_batch_size=1,
    )  # fmt: skip


def comparisons(jobs: Sequence[Job]) -> list[Comparison]:
    """Every cell alone: what is compared stands within it, in the same world or in the same round."""
    return [Comparison((place,), rounds=_rounds(job)) for place, job in enumerate(jobs)]


def _rounds(job: Job) -> int:
    if job.experiment == TRACED or job.delays in VARIED.values():
        return FEWER_SEEDS
    if job.experiment == COSTS:  # short rounds
        return 2 * ROUNDS
    return (JUDGED_SEEDS if job.experiment == FORECASTS else SEEDS) if job.simulated else ROUNDS
