"""The measurements of one cell, computed from what its ranks traced."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from lockstep.engine.job import Job
from lockstep.engine.sync.emulation import decides_on_work
from lockstep.engine.training.loop import STEP_COLUMNS, Trace
from lockstep.records import MEASUREMENTS, Row

ACCURACIES = ("train_accuracy", "validation_accuracy", "test_accuracy")
_SECONDS_OF_THE_SLOWEST = (
    "step_seconds", "input_seconds", "compute_seconds", "forward_seconds", "backward_seconds", "exchange_seconds",
    "update_seconds",
)  # fmt: skip
_LARGEST = ("wait_seconds", "decode_seconds", "bytes_sent")


def summarise(job: Job, traces: Sequence[Trace]) -> dict[str, float]:
    """The measurements of a row from the traces of all ranks: means over the steps, then the slowest rank's mean; of a
    whole step the lower quartile."""
    if not any(trace.steps for trace in traces):  # as of a profile, whose table holds what was measured
        return dict(traces[0].scores)
    if decides_on_work(job.values):
        return _per_update(job, traces)
    # Everything is per step of the workers. A server that is asked less often has fewer rows.
    count = traces[0].summed or len(traces[0].steps)
    sums = [pd.DataFrame(trace.steps, columns=list(STEP_COLUMNS)).sum(min_count=1) for trace in traces]
    means = pd.DataFrame(sums) / count
    measured = {name: float(means[name].max()) for name in (*_SECONDS_OF_THE_SLOWEST, *_LARGEST)}
    measured |= _link_bytes(job, means)
    if job.model_parallel == "pipeline":
        measured["idle_seconds"] = float(means["idle_seconds"].mean())
    measured["startup_seconds"] = max(trace.startup_seconds for trace in traces)
    if (typical := _typical_step(job, traces)) is not None:
        measured["step_seconds"] = typical
    if means["images"].sum():
        # Losses are sums over a rank's share, weighted by 1 / global batch.
        measured["train_loss"] = float(means["train_loss"].sum())
        measured["images_per_second"] = float(means["images"].sum()) / measured["step_seconds"]
        if job.images and not job.holds_out:  # then a fifth of the images is not trained on
            measured["epoch_seconds"] = job.images / measured["images_per_second"]
    return measured | traces[0].scores


def _per_update(job: Job, traces: Sequence[Trace]) -> dict[str, float]:
    """Of a server whose workers take steps of their own: everything is per update, and the mean counts, because the
    rare long update is what is looked for."""
    server, tasks = traces[-1], pd.DataFrame(traces[-1].tables["tasks"])
    updates = pd.DataFrame(server.steps, columns=list(STEP_COLUMNS))
    named = ("step_seconds", "exchange_seconds", "update_seconds", "wait_seconds", "bytes_sent")
    measured = {name: float(updates[name].mean()) for name in named}
    first = 0 if job.learns else job.warmup_steps
    used = tasks[tasks["update"] >= first]
    count = server.summed or len(server.steps)
    measured["compute_seconds"] = float(used["compute_seconds"].mean())
    measured["images_per_second"] = float(used["samples"].sum()) / (count * measured["step_seconds"])
    measured["startup_seconds"] = max(trace.startup_seconds for trace in traces)
    return measured | traces[0].scores


def slowest_steps(traces: Sequence[Trace]) -> pd.Series:
    """Seconds of every measured step, of the slowest rank that has one: a server may have fewer steps than workers."""
    return pd.DataFrame([[step["step_seconds"] for step in trace.steps] for trace in traces]).max().astype(float)


def _typical_step(job: Job, traces: Sequence[Trace]) -> float | None:
    """The lower quartile of a visit's steps, of the slowest worker; None where steps differ by design, as those with
    and without an exchange do: then the mean counts.

    What else runs on a machine can only make a step slower, and single steps are slower by half now and then.
    """
    if traces[0].summed or job.exchange_every > 1:
        return None
    return float(slowest_steps(traces[: job.workers]).quantile(0.25))


def _link_bytes(job: Job, means: pd.DataFrame) -> dict[str, float]:
    """The bytes that the emulated links carried per step, counted once per host; empty without emulated links.

    Every byte that one host sends is received by another. The larger of the two sums counts: a server's last messages
    may still be under way when it reads its link's counter, whereas a receiver reads its counter when it has them.
    """
    if not job.link_bits_per_second:
        return {}
    hosts = means.groupby([rank * job.hosts // job.ranks for rank in range(job.ranks)])  # equal blocks of ranks
    sent, received = hosts["link_bytes_sent"].max(), hosts["link_bytes_received"].max()
    total = max(sent.sum(), received.sum())
    return {"link_bytes_sent": float(total), "link_bytes_busiest": float(max(sent.max(), received.max()))}


_RATES = ("images_per_second", "flops_per_second", "bandwidth_bytes_per_second")
_SUMS = ("other_cpu_seconds", "steal_seconds", "measuring_seconds")
_PEAKS = ("peak_pss_bytes",)


def merged(rows: Sequence[Row]) -> Row:
    """One row for a cell that was visited several times in a round: means over its visits, of rates the harmonic one;
    what others took of the machine and what measuring took is summed. The first visit that failed speaks for all."""
    bad = [row for row in rows if row["status"] != "ok"]
    if bad or len(rows) == 1:
        return (bad or rows)[0]
    row = dict(rows[0])
    for name in MEASUREMENTS:
        values = [each[name] for each in rows if each[name] is not None]
        row[name] = _merged(name, values) if len(values) == len(rows) else None
    notes = dict.fromkeys(note for each in rows for note in str(each["reason"]).split("; ") if note)
    row["reason"] = "; ".join(notes)
    return row


def _merged(name: str, values: Sequence[Any]) -> Any:
    if MEASUREMENTS[name].kind == "integer":
        return max(values)
    if name in _SUMS:
        return math.fsum(values)
    if name in _PEAKS:
        return max(values)
    if name in _RATES and all(values):
        return len(values) / math.fsum(1 / value for value in values)
    return math.fsum(values) / len(values)
