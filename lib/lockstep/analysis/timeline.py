"""Which rank was slow, and in which phase: from the steps of every rank (`timeline.csv`), as tables and as a picture.

    rank 0   | input | compute .......| wait ....| exchange | update |
    rank 1   | input | compute ..................| exchange | update |     rank 1 arrived last, because of compute
                                                 ^ they meet

A step of a rank is one row: `rank`, `step`, `start_seconds` since that rank's first measured step began, and the
seconds of each phase. Only times of one rank are ever subtracted from each other, so ranks may be on hosts whose
clocks differ: synchronous ranks end a step together, and each is drawn from its own beginning.

Of a pipeline there is more to see (`actions.csv`): the last measured step of every rank, an action per micro-batch.

    rank 0   | F0 | F1 |         | B0 | B1 | update |
    rank 1        | F0 | B0 | F1 | B1 | update |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from lockstep.engine.files import write_atomically

OWN = ("input", "compute", "other")
"""What a rank does before it meets the others; `other` is what no phase accounts for."""
SHARED = ("wait", "exchange", "update")
_MICROSECONDS = 1e6


def own_seconds(steps: pd.DataFrame) -> pd.DataFrame:
    """The workers' rows (servers compute nothing) with `other_seconds`, and `own_seconds`: what was no shared phase.

    Also `last`: this rank came last in its step (the first of several), and `late_seconds` behind the quickest.
    Raises ValueError if rows are of more than one cell of a grid, or there are fewer than two workers.
    """
    if steps.duplicated(["rank", "step"]).any():
        raise ValueError("a rank has several rows for one step: give the rows of one cell and one round")
    workers = steps[steps.groupby("rank")["compute_seconds"].transform("sum") > 0].copy()
    if workers["rank"].nunique() < 2:
        raise ValueError(f"{workers['rank'].nunique()} worker in these steps has nobody to be compared with; give two")
    shared = workers[[f"{name}_seconds" for name in SHARED]].sum(axis=1)
    workers["own_seconds"] = workers["step_seconds"] - shared
    workers["other_seconds"] = workers["own_seconds"] - workers["input_seconds"] - workers["compute_seconds"]
    of_step = workers.groupby("step")["own_seconds"]
    workers["late_seconds"] = workers["own_seconds"] - of_step.transform("min")
    workers["last"] = workers.index.isin(of_step.idxmax())
    return workers


def rank_table(steps: pd.DataFrame) -> pd.DataFrame:
    """A row per worker: mean seconds of every phase, mean `late_seconds`, and in how many steps it `arrived_last`."""
    workers = own_seconds(steps)
    seconds = [f"{name}_seconds" for name in (*OWN, *SHARED, "own", "late")]
    table = workers.groupby("rank")[seconds].mean()
    by_rank = workers.groupby("rank")["last"]
    return table.assign(arrived_last=by_rank.sum().astype(int), steps=by_rank.size()).reset_index()


@dataclass(frozen=True)
class Slowest:
    """The rank that takes longest before it meets the others, and the phase in which it loses most."""

    rank: int
    phase: str  # input | compute | other
    behind_seconds: float  # per step, its own time less the other ranks' median
    phase_seconds: float  # of these, in that phase
    arrived_last: int
    steps: int

    def __str__(self) -> str:
        return (
            f"rank {self.rank} is slowest: {self.behind_seconds:.4f} s a step behind the others' median, "
            f"{self.phase_seconds:.4f} s of it in {self.phase}; "
            f"arrived last in {self.arrived_last} of {self.steps} steps"
        )


def slowest(steps: pd.DataFrame) -> Slowest:
    """Raises ValueError as `own_seconds` does."""
    table = rank_table(steps).set_index("rank")
    rank = int(table["own_seconds"].idxmax())
    behind = table.loc[rank, :] - table.drop(index=rank).median()
    phase = max(OWN, key=lambda name: behind[f"{name}_seconds"])
    return Slowest(
        rank=rank,
        phase=phase,
        behind_seconds=float(behind["own_seconds"]),
        phase_seconds=float(behind[f"{phase}_seconds"]),
        arrived_last=int(table.loc[rank, "arrived_last"]),
        steps=int(table.loc[rank, "steps"]),
    )


CELL = ("experiment", "use_case", "strategy", "hosts", "workers", "variant")
CELL_OF_ACTIONS: tuple[str, ...] = ("experiment", "use_case", "strategy", "device", "workers", "stages")
CELL_OF_ACTIONS += ("stages_per_rank", "micro_batches", "partition", "activations", "global_batch_size", "variant")


def slowest_table(steps: pd.DataFrame) -> pd.DataFrame:
    """Who was slow in every traced cell with two workers or more: CELL, rank, phase, behind_seconds, phase_seconds
    (means over rounds of the rank that was slowest most often), and in how many of its steps it `arrived_last`."""
    table = []
    for key, own in steps.groupby(list(CELL), sort=False):
        by_round = [slowest(rows) for _, rows in own.groupby("round") if rows["rank"].nunique() > 1]
        if not by_round:
            continue
        ranks = [each.rank for each in by_round]
        rank = max(sorted(set(ranks)), key=ranks.count)
        chosen = [each for each in by_round if each.rank == rank]
        phases = [each.phase for each in chosen]
        row = dict(zip(CELL, key, strict=True)) | {"rank": rank, "phase": max(sorted(set(phases)), key=phases.count)}
        row |= {"behind_seconds": sum(each.behind_seconds for each in chosen) / len(chosen)}
        row |= {"arrived_last": sum(each.arrived_last for each in chosen), "of_steps": sum(e.steps for e in by_round)}
        table.append(row | {"slowest_in_rounds": len(chosen), "rounds": len(by_round)})
    return pd.DataFrame(table)


def write_traces(steps: pd.DataFrame, folder: str | Path) -> list[Path]:
    """A Chrome trace of the first round of every traced cell; returns the paths. Raises WriteError."""
    return _write_each(steps, CELL, chrome_trace, folder)


def write_action_traces(actions: pd.DataFrame, folder: str | Path) -> list[Path]:
    """A Chrome trace (`action_trace`) of the first round of every cell of a pipeline; returns the paths.

    Raises WriteError."""
    return _write_each(actions, CELL_OF_ACTIONS, action_trace, folder)


def _write_each(
    table: pd.DataFrame, cell: Sequence[str], trace: Callable[[pd.DataFrame], dict[str, Any]], folder: str | Path
) -> list[Path]:
    paths = []
    for key, own in table.groupby(list(cell), sort=False):
        path = Path(folder) / ("-".join(str(part) for part in key) + ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(trace(own[own["round"] == own["round"].min()])) + "\n")
        paths.append(path)
    return paths


def chrome_trace(steps: pd.DataFrame) -> dict[str, Any]:
    """The steps as a Chrome trace (chrome://tracing, Perfetto): a thread per rank, an event per phase.

    Within a step phases are drawn in the order input, compute, wait, exchange, update, whatever order they had; time
    that no phase accounts for is left blank at the end. Raises ValueError for rows of several cells.
    """
    if steps.duplicated(["rank", "step"]).any():
        raise ValueError("a rank has several rows for one step: give the rows of one cell and one round")
    events = _rank_names(steps)
    for row in steps.sort_values(["rank", "step"]).to_dict("records"):
        at = float(row["start_seconds"])
        for phase in ("input", "compute", *SHARED):
            seconds = float(row[f"{phase}_seconds"])
            if seconds > 0:
                where = {"pid": 0, "tid": int(row["rank"]), "args": {"step": int(row["step"])}}
                when = {"ts": at * _MICROSECONDS, "dur": seconds * _MICROSECONDS}
                events.append({"name": phase, "ph": "X"} | where | when)
            at += seconds
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def action_trace(actions: pd.DataFrame) -> dict[str, Any]:
    """A step of a pipeline as a Chrome trace: a thread per rank, an event per action, which says its stage and
    micro-batch. Raises ValueError for rows of several cells or rounds."""
    mixed = [name for name in (*CELL_OF_ACTIONS, "round") if name in actions and actions[name].nunique() > 1]
    if mixed:
        raise ValueError(f"these actions differ in {', '.join(mixed)}: give the rows of one cell and one round")
    events = _rank_names(actions)
    for row in actions.sort_values(["rank", "start_seconds"]).to_dict("records"):
        arguments = {name: int(row[name]) for name in ("stage", "micro_batch", "replica") if pd.notna(row[name])}
        where = {"pid": 0, "tid": int(row["rank"]), "args": arguments}
        when = {"ts": row["start_seconds"] * _MICROSECONDS, "dur": row["seconds"] * _MICROSECONDS}
        events.append({"name": str(row["action"]), "ph": "X"} | where | when)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _rank_names(rows: pd.DataFrame) -> list[dict[str, Any]]:
    named = {"name": "thread_name", "ph": "M", "pid": 0}
    ranks = sorted(int(rank) for rank in rows["rank"].unique())
    return [named | {"tid": rank, "args": {"name": f"rank {rank}"}} for rank in ranks]
