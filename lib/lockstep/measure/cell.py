"""Measuring one cell of a grid on a warm team: its row, and the traced tables it adds to."""

from __future__ import annotations

import math

import pandas as pd

from lockstep.engine.cores import usable_cores
from lockstep.engine.job import Job
from lockstep.engine.launch import Team, WorkerFailed
from lockstep.engine.training.loop import Site
from lockstep.engine.training.scores import DIVERGED
from lockstep.engine.usecases import Source
from lockstep.measure.contention import Contention
from lockstep.measure.environment import missing
from lockstep.measure.probes import PROBES
from lockstep.measure.probes.probe import Probes
from lockstep.measure.progress import say
from lockstep.measure.resources import ResourceSampler
from lockstep.measure.summary import ACCURACIES, summarise
from lockstep.measure.teams import Teams
from lockstep.measure.traced_tables import traced_tables
from lockstep.records import CONTENDED, Row, make_row

TRACE_INTERVAL_SECONDS = 0.2  # five samples a second


def measure_job(
    job: Job, source: Source | None, teams: Teams, traced: bool = False, probes: Probes = PROBES
) -> tuple[Row, dict[str, pd.DataFrame], bool]:
    """Measure one cell. Returns its row, its rows of the traced tables, and whether others used the machine meanwhile.

    `probes`: by experiment, what is measured where nothing trains. With `traced`, the samples of CPU, memory and
    threads are one of the tables. A cell that fails or can't run here is a row too, with the reason.
    """
    probe = probes.get(job.experiment)
    reason = why_impossible(job) or (probe.lacking(job, source) if probe else None)
    if reason is not None:
        return make_row(job, {}, status="skipped", reason=reason), {}, False
    team = teams.team(job)
    site = Site(data_root=source.root, skipped=source.skipped) if source else Site()
    try:
        if probe is not None and probe.restarts_team:
            team.close()
        teams.make_room(job)
        team.start()
        network = job.link_bits_per_second > 0
        with (
            Contention(network=network) as contention,
            ResourceSampler(team.pids, TRACE_INTERVAL_SECONDS if traced else 0.5, tell_threads=traced) as sampler,
        ):
            traces = team.run(job, site, probe.run if probe else None)
    except WorkerFailed as failure:
        say(str(failure))
        return make_row(job, {}, status="failed", reason=str(failure).splitlines()[0]), {}, False
    measured = summarise(job, traces) | _around(team, source, contention, sampler)
    status, notes = _status(job, measured, team, contention)
    row = make_row(job, measured, status=status, reason="; ".join(notes))
    tables = traced_tables(job, traces, sampler if traced and not team.repeated else None, probe)
    return row, tables, contention.contended()


def _around(team: Team, source: Source | None, contention: Contention, sampler: ResourceSampler) -> dict[str, float]:
    """The measurements that are made from outside, while the workers run."""
    measured: dict[str, float] = {
        "other_cpu_seconds": contention.other_cpu_seconds,
        "steal_seconds": contention.steal_seconds,
        "launch_seconds": team.start_seconds,
    }
    if not team.repeated:  # else the processes that finished the job are not those that were sampled
        measured["peak_pss_bytes"] = float(sampler.peak_pss_bytes)
    if source is not None and source.kind == "real":  # the synthetic stand-in has no unreadable photos to look for
        measured["skipped_images"] = len(source.skipped)
    return measured


def _status(job: Job, measured: dict[str, float], team: Team, contention: Contention) -> tuple[str, list[str]]:
    """The row's status, and the notes for its column `reason`."""
    notes = job.cautions(len(usable_cores()))
    if not job.simulated and contention.contended():
        notes.append(CONTENDED)
    if team.repeated:
        notes.append(team.repeated)
    # A run that diverged is not ok: a mean over the other seeds alone would hide it.
    if any(math.isnan(measured.get(name, 0.0)) for name in ACCURACIES):
        return "failed", [DIVERGED, *notes]
    return "ok", notes


def why_impossible(job: Job) -> str | None:
    """The reason why this cell can't be measured on this machine, or None if it can."""
    if job.framework != "torch" and not depends_on_framework(job):
        return f"experiment {job.experiment!r} measures torch alone, not {job.framework}"
    return missing(job)


def depends_on_framework(job: Job) -> bool:
    """Whether what is measured depends on the job's framework, so that another one than torch makes sense."""
    return job.experiment not in PROBES or PROBES[job.experiment].any_framework
