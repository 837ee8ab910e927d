"""Tables of stages and ranks, from what was traced: speedup over the ideal, memory, and the cells of the diagram.

Everything is paired per round: what was measured in a round is compared with what was measured in the same round.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from lockstep.analysis.statistics import SESSION, Conditions, interval_of, median_or_nan, per_round, select
from lockstep.analysis.tables import ratio_columns
from lockstep.engine.job import CHOICES
from lockstep.predict.pipeline_model import ideal_speedup
from lockstep.predict.pipeline_speedups import OPTIONS

TABLE_CELL: tuple[str, ...] = ("experiment", "use_case", "strategy", "device", "workers", *OPTIONS[1:])
TABLE_CELL += ("global_batch_size", "variant")
"""The columns that distinguish a cell's rows in `stages.csv`, `actions.csv` and `layers.csv` from another cell's."""
STAGE_TIMES, STAGE_MEMORY = "stage_times", "stage_memory"
"""The experiment in which stages ran alone, all others trained; and the one in which their tensors were counted, which
takes time."""


# Speed and bubbles


def of_ideal(records: pd.DataFrame, stages: pd.DataFrame, cell: Mapping[str, Any], naive: Conditions) -> pd.Series:
    """A pipeline's speedup over naive model parallelism / the ideal one for its bubble and its partition, per round.

        ideal = S (1 - bubble) / imbalance        imbalance = slowest rank's computing / the mean over ranks

    `cell`: conditions of one cell with its options. Raises AnalysisError as `per_round` does.
    """
    gain = per_round(records, naive, "step_seconds") / per_round(records, cell, "step_seconds")
    gain = gain.droplevel(SESSION)  # a folder's rounds are numbered through, whatever their session
    own = select(stages, {name: cell[name] for name in TABLE_CELL if name in cell}, status=None)
    busy = own.assign(busy=own["forward_seconds"] + own["backward_seconds"])
    busy = busy[busy["replica"] == 0].groupby(["round", "rank"])["busy"].sum().unstack()
    ideal = pd.Series({number: _ideal_speedup(cell, row.max() / row.mean()) for number, row in busy.iterrows()})
    return (gain / ideal).dropna()


def _ideal_speedup(cell: Mapping[str, Any], imbalance: float) -> float:
    ranks = cell["stages"] // cell["stages_per_rank"]
    return ideal_speedup(ranks, cell["micro_batches"] * cell["stages_per_rank"], imbalance)


def table_cells(frame: pd.DataFrame) -> list[tuple[dict[str, Any], pd.DataFrame]]:
    """Every cell of a traced table: its identity, and its rows of all rounds. They are ordered by schedule, ranks and
    micro-batches, for a round measures its cells in an order of its own."""
    found = []
    for key, rows in frame.groupby(list(TABLE_CELL), sort=False) if len(frame) else ():
        found.append((dict(zip(TABLE_CELL, key, strict=True)), rows))
    return sorted(found, key=lambda pair: _position(pair[0]))


def _position(cell: Mapping[str, Any]) -> tuple[Any, ...]:
    names = ("use_case", "workers", "stages", "micro_batches", "partition", "activations", "experiment", "variant")
    return (CHOICES["schedule"].index(cell["schedule"]), *(cell[name] for name in names))


def images_per_micro_batch(cell: Mapping[str, Any]) -> int:
    """Images of one micro-batch: the global batch over replicas and micro-batches."""
    replicas = cell["workers"] * cell["stages_per_rank"] // cell["stages"]
    return int(cell["global_batch_size"] // (replicas * cell["micro_batches"]))


# Memory


def rank_memory_table(stages: pd.DataFrame) -> pd.DataFrame:
    """A row per cell of STAGE_MEMORY and rank: what it should hold by estimate, and what it held.

    Columns: TABLE_CELL, rank, parameters (count), share (of the model's), parameter_bytes (parameters, gradients and
    optimiser state), in_flight (of its first stage), activation_bytes (of all micro-batches in flight), bound_bytes
    (their sum), working_bytes (besides: buffers of micro-batches not in flight, and what a backward pass takes for a
    moment), peak_bytes (measured), ratio, low, high (peak / estimate, per round), of_all (peak / all of these bytes),
    rss_bytes, rounds, pipeline_ranks. Medians, bytes.
    """
    table = []
    for cell, rows in table_cells(stages[stages["experiment"] == STAGE_MEMORY] if len(stages) else stages):
        held = rows.assign(held=rows["in_flight"] * rows["activation_bytes"])
        whole = held[held["replica"] == 0].groupby("round")["parameters"].sum().median()
        for rank, own in held[held["replica"] == 0].groupby("rank"):
            sums = own.groupby("round")[["parameters", "parameter_bytes", "held"]].sum()
            once = own.groupby("round")[["in_flight", "working_bytes", "peak_bytes", "rss_bytes"]].first()
            bound = sums["parameter_bytes"] + sums["held"]
            known = (once["peak_bytes"] / bound).dropna()
            ratio = interval_of(known) if len(known) else None
            row: dict[str, Any] = {"rank": int(str(rank)), "parameters": int(sums["parameters"].median())}
            row |= {"share": row["parameters"] / whole, "parameter_bytes": sums["parameter_bytes"].median()}
            row |= {"in_flight": int(once["in_flight"].median()), "activation_bytes": sums["held"].median()}
            row |= {"bound_bytes": bound.median(), "peak_bytes": median_or_nan(once["peak_bytes"])}
            row |= {"pipeline_ranks": cell["stages"] // cell["stages_per_rank"]}
            working = once["working_bytes"]
            row |= {"working_bytes": working.median(), "of_all": median_or_nan(once["peak_bytes"] / (bound + working))}
            row |= ratio_columns(ratio, "ratio") | {"rss_bytes": median_or_nan(once["rss_bytes"])}
            table.append(cell | row | {"rounds": ratio.rounds if ratio else 0})
    return pd.DataFrame(table)


def largest_table(stages: pd.DataFrame) -> pd.DataFrame:
    """A row per cell of STAGE_MEMORY: what the whole model would hold on one device, what its fullest rank must hold
    here, and how many times as large a model would fit where the whole one just fits: times, one_device_bytes /
    largest_rank_bytes; at_least, over the fullest rank's measured peak. One device's own peak would be above its count.

    One device trains the whole batch at once: all parameters, and the activations of all micro-batches.
    """
    memory = rank_memory_table(stages)
    table = []
    for cell, rows in table_cells(stages[stages["experiment"] == STAGE_MEMORY] if len(stages) else stages):
        first = rows[rows["replica"] == 0]
        whole = first["parameter_bytes"] + first["activation_bytes"] * cell["micro_batches"]
        one_device = float(whole.groupby(first["round"]).sum().median())
        largest, peak = select(memory, cell, status=None)[["bound_bytes", "peak_bytes"]].astype(float).max()
        sizes = {"one_device_bytes": one_device, "largest_rank_bytes": largest, "times": one_device / largest}
        sizes |= {"at_least": one_device / peak}
        table.append(cell | {"pipeline_ranks": cell["stages"] // cell["stages_per_rank"]} | sizes)
    return pd.DataFrame(table)


# What the diagram shows


def shown_cells(frame: pd.DataFrame, experiment: str = "schedules") -> pd.DataFrame:
    """A cell per schedule of a table with TABLE_CELL: naive, and the others with the middle number of micro-batches;
    of each its first round."""
    own = frame[frame["experiment"] == experiment] if len(frame) else frame
    counts = sorted(own.loc[own["schedule"] != "naive", "micro_batches"].unique()) if len(own) else []
    if not counts:
        return own
    middle = counts[len(counts) // 2]
    own = own[((own["schedule"] == "naive") | (own["micro_batches"] == middle)) & (own["variant"] == "a")]
    return own[own["round"] == own.groupby(list(TABLE_CELL))["round"].transform("min")]
