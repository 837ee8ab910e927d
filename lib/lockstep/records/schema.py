"""The columns of `records.csv`, and what fits them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from lockstep.engine import registry
from lockstep.engine.job import CHOICES, IDENTITY, Job
from lockstep.engine.job.strategies import LAUNCHER_NAMES, RUNGS, STRATEGIES, YARDSTICKS

SCHEMA_VERSION = 2
CONTENDED = "contended"
"""In the reason of an ok row: others used the machine meanwhile, so no verdict rests on its round, but for
what others cannot change (`lockstep.records.reading.beyond_others`)."""
MEASURED, TRACE, SIMULATED = "measured", "trace", "simulated"
"""Sources of a row. What is simulated is repeated by seed, and no machine or day changes it. A trace trained for a
minute in one go while its resources were sampled: it is no repetition of its cell, and no median, ratio or interval
holds it."""
MEMORY = "memory"  # the experiment whose cells say what processes hold at their peak


class RecordError(ValueError):
    """A row, a file or a folder that does not fit the schema; the message names the place and the fix."""


@dataclass(frozen=True)
class Column:
    """One column of `records.csv`."""

    kind: str  # text | integer | number | flag
    unit: str = ""
    allowed: tuple[str, ...] = ()  # of a text column; empty: any text
    meaning: str = ""


_KINDS = {"str": "text", "int": "integer", "float": "number", "bool": "flag"}
_ALLOWED: dict[str, tuple[str, ...]] = {
    **CHOICES,
    # Yardsticks are not strategies; `own` is a reader's own job.
    "strategy": tuple(dict.fromkeys((*STRATEGIES, *RUNGS, *YARDSTICKS, "own"))),
    "launcher": (*LAUNCHER_NAMES, *registry.SIMULATORS),
    "sync": (*registry.syncs_and_peers(), "copy_bound", "ping_pong"),
}

MEASUREMENTS: dict[str, Column] = {
    "images_per_second": Column("number", "1/s", meaning="global batch / step_seconds"),
    "step_seconds": Column(
        "number", "s",
        meaning="wall time of an optimiser step, slowest rank: lower quartile of a visit's, mean of both visits",
    ),
    "input_seconds": Column("number", "s", meaning="per step: waiting for decoded images, slowest rank"),
    "compute_seconds": Column("number", "s", meaning="per step: forward and backward pass, slowest rank"),
    "wait_seconds": Column("number", "s", meaning="per step: waiting for the other ranks, most patient rank"),
    "exchange_seconds": Column("number", "s", meaning="per step: moving and summing gradients, slowest rank"),
    "update_seconds": Column("number", "s", meaning="per step: the optimiser, slowest rank"),
    "forward_seconds": Column("number", "s", meaning="per step: forward pass and loss, slowest rank; part of compute"),
    "backward_seconds": Column("number", "s", meaning="per step: backward pass, slowest rank; part of compute"),
    "idle_seconds": Column(
        "number", "s",
        meaning="per step, mean over a pipeline's ranks: waiting for an activation, a gradient or the others to begin",
    ),
    "decode_seconds": Column("number", "s", meaning="per step and worker: CPU time of decoding"),
    "epoch_seconds": Column("number", "s", meaning="derived: images / images_per_second"),
    "startup_seconds": Column("number", "s", meaning="building replica and sync, not in step_seconds"),
    "launch_seconds": Column("number", "s", meaning="starting the team that ran the row, until all ranks were ready"),
    "bytes_sent": Column(
        "number", "B",
        meaning="per step and rank, handed to the transport; of an all-reduce that a library does (gloo, MPI), what a "
        "ring would send: link_bytes_sent counts what really passed",
    ),
    "link_bytes_sent": Column("number", "B", meaning="per step: through all hosts' links, headers included; counted"),
    "link_bytes_busiest": Column("number", "B", meaning="per step: of the busiest link, the larger way; counted"),
    "bandwidth_bytes_per_second": Column("number", "B/s", meaning="copy bandwidth of the row's cores, read + written"),
    "flops_per_second": Column("number", "1/s", meaning="of a large matrix product; in a profile: of the convolutions"),
    "flops_per_image": Column("number", meaning="counted: forward and backward pass, matrix products and convolutions"),
    "peak_pss_bytes": Column("number", "B", meaning="proportional set size of all workers together, peak"),
    "train_loss": Column("number", meaning="mean over the measured steps; where train_accuracy stands, as that is"),
    "test_accuracy": Column("number", meaning="0-1"),
    "test_balanced_accuracy": Column("number", meaning="0-1: mean recall of the classes that occur"),
    "test_auc": Column("number", meaning="0-1; of more than 2 classes the mean over one-vs-rest"),
    "test_loss": Column("number", meaning="mean cross-entropy"),
    "train_accuracy": Column("number", meaning="0-1, at the end, without augmentation and dropout, of all trained on"),
    "validation_accuracy": Column("number", meaning="0-1, of the training images that were held out"),
    "validation_balanced_accuracy": Column("number", meaning="0-1: mean recall of the classes that occur"),
    "validation_loss": Column("number", meaning="mean cross-entropy"),
    "epochs_trained": Column("integer", meaning="whole epochs, those that early stopping gave up included"),
    "updates_done": Column("integer", meaning="optimiser steps of the whole training"),
    "training_seconds": Column("number", "s", meaning="all optimiser steps together, evaluation left out"),
    "skipped_images": Column("integer", meaning="unreadable images left out"),
    "other_cpu_seconds": Column("number", "s", meaning="CPU time of foreign processes while measuring"),
    "steal_seconds": Column("number", "s", meaning="CPU time the hypervisor withheld"),
    "measuring_seconds": Column(
        "number", "s", meaning="wall time of the row's measurement, start and warm-up included"
    ),
}

OUTCOME: dict[str, Column] = {
    "session": Column(
        "integer", meaning="on which machine, with which commit, on which day: see `sessions` of run.json"
    ),
    "source": Column("text", allowed=(MEASURED, TRACE, SIMULATED), meaning="trace: a minute with resources sampled"),
    "status": Column("text", allowed=("ok", "failed", "skipped")),
    "reason": Column("text", meaning="why failed or skipped, or a caveat of an ok row"),
}

COLUMNS: dict[str, Column] = {
    **{
        name: Column(_KINDS[option.kind], allowed=_ALLOWED.get(name, ()), meaning=option.help)
        for name, option in Job.options().items()
    },
    **MEASUREMENTS,
    **OUTCOME,
}

ADDED: tuple[str, ...] = tuple(IDENTITY[IDENTITY.index("selected") + 1 :])
"""Options that came since a file was written, which may lack them: its rows have the default."""

TABLES: tuple[str, ...] = ("resources", "operators", "steps", "timeline", "stages", "actions", "layers", "spark")
TABLES += ("epochs", "confusion", "flops", "tasks", "policies", "forecasts", "histories", "examples")
TABLES += ("trace_forecasts", "slow_loading", "forecast_costs", "denormals", "gradients", "input_parts", "trials")
TABLES += ("curves", "studies", "models", "scores")
"""Traced tables that may stand beside `records.csv`."""
COMPUTED = ("replays", "best_so_far", "curve_forecasts", "importances")
"""Tables that an experiment computes of all rounds when a run ends, since it takes minutes; they are of no round."""
TEXTS_OF_TABLES: tuple[str, ...] = ("experiment", "use_case", "strategy", "device", "operators", "launcher", "variant")
TEXTS_OF_TABLES += ("phase", "schedule", "partition", "activations", "action", "name", "executor_data")
TEXTS_OF_TABLES += ("network", "framework", "pooling", "class_weights", "augmentation", "learning_rate_rule")
TEXTS_OF_TABLES += ("delays", "compute", "contender", "policy", "policy_options", "data", "reason")
TEXTS_OF_TABLES += ("forecaster", "state", "period", "unit", "way", "part")
TEXTS_OF_TABLES += ("learning_rate_decay", "scored_on", "split", "actual", "predicted", "memory_format", "fate")
TEXTS_OF_TABLES += ("space", "head", "compared", "pruner", "text", "dominated_by", "made_of")
"""Their columns that hold text; all others are numbers, and an empty field is one that was not measured."""

Row = dict[str, Any]


def make_row(job: Job, measured: Mapping[str, Any], *, status: str = "ok", reason: str = "", session: int = 0) -> Row:
    """A checked row of `records.csv`. Raises RecordError naming the column, the value and what is allowed."""
    row: Row = {name: getattr(job, name) for name in IDENTITY}
    row.update(dict.fromkeys(MEASUREMENTS))
    unknown = set(measured) - set(MEASUREMENTS)
    if unknown:
        raise RecordError(f"unknown measurement(s) {sorted(unknown)}; there are: {', '.join(MEASUREMENTS)}")
    row.update(measured)
    row.update(
        session=session, source=SIMULATED if job.simulated else MEASURED, status=status, reason=" ".join(reason.split())
    )
    check_row(row)
    return row


def check_row(row: Mapping[str, Any]) -> None:
    """Raises RecordError if a value does not fit its column."""
    for name, column in COLUMNS.items():
        if name not in row:
            raise RecordError(f"column {name!r} is missing from a row of records.csv")
        value = row[name]
        if name in MEASUREMENTS and (value is None or pd.isna(value)):
            continue
        if column.allowed and value not in column.allowed:
            raise RecordError(f"{name}={value!r} is not allowed; give one of: {', '.join(column.allowed)}")
        fits = {
            "text": isinstance(value, str),
            "integer": isinstance(value, int) and not isinstance(value, bool),
            "number": isinstance(value, int | float) and not isinstance(value, bool),
            "flag": isinstance(value, bool),
        }[column.kind]
        if not fits:
            raise RecordError(f"{name}={value!r} is not {column.kind}; see lockstep.records.COLUMNS")
    if row["status"] != "ok" and not row["reason"]:
        raise RecordError(f"a {row['status']} row must say why: fill 'reason' ({row['strategy']}, {row['use_case']})")
