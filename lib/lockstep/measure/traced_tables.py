"""The traced tables of a cell: what ranks recorded within it, beside its single row of records.

Every row of a traced table begins with the columns that tell its cell from the others. Which columns these are is
declared for each table: here for those that training writes, and by a probe for its own (`Probe.tables`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from lockstep.engine.job import LEARNING, OF_LEARNING, OF_SIZES, Job
from lockstep.engine.training.loop import STEP_COLUMNS, Trace
from lockstep.measure.probes.probe import OF_PIPELINES, Probe
from lockstep.measure.resources import ResourceSampler
from lockstep.measure.summary import slowest_steps

_OF_EVERY_TABLE = ("device", "workers", "round", "strategy", "use_case", "experiment")
_OF_LEARNING = (
    "images", "launcher", "framework", "global_batch_size", "exchange_every", "memory_format", "stages",
    "micro_batches", *OF_LEARNING, "seed", "variant", "selected", *OF_SIZES,
)  # fmt: skip
_LEARNING_TABLES = ("epochs", "confusion", "scores")
OF_A_ROW = ("steps", "scores")  # of so many rows that round and row must tell the cell, whose records have the rest
LOAD, TRAIN = "load", "train"
"""Phases of a trace."""
STEPS_TRACED = ("timeline",)
"""The experiments of which every step of every rank is kept, with its phases, in `timeline.csv`; of workers that take
steps of their own every task, in `tasks.csv`."""

_OF_TRAINING: Mapping[str, Sequence[str]] = {
    "epochs": _OF_LEARNING,
    "confusion": _OF_LEARNING,
    "stages": OF_PIPELINES,
    "actions": OF_PIPELINES,
    "spark": ("variant", "executor_data", "exchange_every", "global_batch_size", "images"),
    "timeline": ("variant", "hosts", "launcher"),
    "tasks": ("variant", "launcher", "policy", "policy_options", "delays", "compute", "seed"),
}
"""Table that training writes -> the columns of its cell, besides those that every table has."""


def traced_tables(
    job: Job, traces: Sequence[Trace], sampler: ResourceSampler | None, probe: Probe | None = None
) -> dict[str, pd.DataFrame]:
    """This cell's rows of each traced table. `sampler`: of the processes, if their samples are to be kept; `probe`:
    what measured the cell, if it did not train."""
    # Of a pipeline that learns, what its stages did in one step is of no interest.
    kept = _LEARNING_TABLES if job.experiment in LEARNING and probe is None else traces[0].tables
    found = {name: pd.DataFrame(rows) for name, rows in traces[0].tables.items() if name in kept}
    by_policy = "tasks" in traces[-1].tables
    if job.experiment in STEPS_TRACED and by_policy:
        found["tasks"] = pd.DataFrame(traces[-1].tables["tasks"])
    elif job.experiment in STEPS_TRACED:
        found["timeline"] = step_table(traces)
    if sampler is not None:
        found["resources"] = _samples(traces, sampler)
    columns_of = {**_OF_TRAINING, **(probe.tables if probe else {})}
    for name, frame in found.items():
        _insert_first(frame, job, columns_of.get(name, ()) if name not in OF_A_ROW else ("seed",))
        _insert_first(frame, job, _OF_EVERY_TABLE if name not in OF_A_ROW else ())
    if job.experiment not in LEARNING and any(trace.steps for trace in traces):
        seconds = slowest_steps(traces[-1:] if by_policy else traces)
        found["steps"] = pd.DataFrame({"step": range(len(seconds)), "seconds": seconds})
    return found


def _insert_first(frame: pd.DataFrame, job: Job, names: Sequence[str]) -> None:
    """Put these columns of the job before those of `frame`, in place."""
    for position, name in enumerate(names):
        # An epoch has a learning rate of its own, beside the one that the job asks for.
        column = f"job_{name}" if name in frame else name
        frame.insert(position, column, getattr(job, name))


def step_table(traces: Sequence[Trace]) -> pd.DataFrame:
    """Every measured step of every rank, as `lockstep.analysis.timeline` reads it.

    Columns: rank, step (0 is the first measured one), start_seconds (since this rank's first step began), then
    STEP_COLUMNS. A server that updates less often than workers step has a row per update, numbered by itself.
    """
    tables = []
    for trace in traces:
        rows = pd.DataFrame(trace.steps, columns=list(STEP_COLUMNS))
        rows.insert(0, "rank", trace.rank)
        rows.insert(1, "step", range(len(rows)))
        rows.insert(2, "start_seconds", rows["step_seconds"].cumsum() - rows["step_seconds"])
        tables.append(rows)
    return pd.concat(tables, ignore_index=True)


def _samples(traces: Sequence[Trace], sampler: ResourceSampler) -> pd.DataFrame:
    """All samples since the cell began to load, each with its phase: `load` until the first measured step (building
    the model, decoding the first images, warm-up), then `train`."""
    samples = sampler.frame()
    # perf_counter is one clock for all processes of a machine.
    began = min(trace.began for trace in traces) - sampler.began
    ended = max(trace.ended for trace in traces) - sampler.began
    kept = samples[samples["seconds"] <= ended]
    return kept.assign(phase=np.where(kept["seconds"] < began, LOAD, TRAIN))
