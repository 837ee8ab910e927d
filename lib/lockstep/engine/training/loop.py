"""The one training loop, and `run_job`, which every launcher calls on every rank."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import torch

from lockstep.engine.data.loader import Loader
from lockstep.engine.files import remove_unfinished
from lockstep.engine.groups import Group, GroupError
from lockstep.engine.groups.links import LinkMeter
from lockstep.engine.job import Job
from lockstep.engine.replica import Batch, Replica
from lockstep.engine.sync import Plan, Share, Sync, make_sync
from lockstep.engine.training import checkpoint
from lockstep.engine.training.epochs import AfterEpoch, EpochTracker, Images, Rate
from lockstep.engine.training.evaluate import evaluate
from lockstep.engine.training.finite import FiniteWatch
from lockstep.engine.training.model_parallel import gather_tables, make_model_parallel_replica, state_bytes
from lockstep.engine.training.randomness import seed_micro_batch
from lockstep.engine.training.rates import plan_of, rate_factor, scheduled
from lockstep.engine.training.replicas import MakeReplica, replica_for
from lockstep.engine.usecases import UseCase, use_case

STEP_COLUMNS = (
    "step_seconds", "input_seconds", "compute_seconds", "forward_seconds", "backward_seconds", "idle_seconds",
    "wait_seconds", "exchange_seconds", "update_seconds", "decode_seconds", "bytes_sent", "link_bytes_sent",
    "link_bytes_received", "train_loss", "images",
)  # fmt: skip
_PASSES = ("forward_seconds", "backward_seconds")
_WITHIN = ("idle_seconds", "exchange_seconds", "bytes_sent")  # what a replica does in its passes besides computing


@dataclass(frozen=True)
class Site:
    """What a job needs to know about this machine, and what is never recorded: paths, and a reader's own use case."""

    data_root: str | None = None
    use_case: UseCase | None = None
    checkpoint: str | None = None  # file, written by rank 0
    checkpoint_every_steps: int = 0  # 0: at the end only
    data: str = ""  # what tells the samples from others (`lockstep.engine.own.identity`); "": nobody asks
    resume: bool = False
    evaluate: bool = False
    skipped: tuple[str, ...] = ()  # photos that can't be read: see `lockstep.engine.usecases.find_images`
    on_nan: str = "stop"  # at a loss that is NaN or infinite; "warn": go on, and say so in the trace
    draws: bool = False  # the model draws what is not keyed by sample: see `lockstep.engine.training.randomness`
    after_epoch: AfterEpoch | None = None  # called on rank 0 with each epoch's row, behind its checkpoint; True: stop


@dataclass
class Trace:
    """What one rank measured: a dict of `STEP_COLUMNS` per measured step, and the scores if they were requested.

    A job that learns may have thousands of steps. Then `steps` holds only their sum, and `summed` their number.
    """

    rank: int
    startup_seconds: float = 0.0
    began: float = 0.0  # time.perf_counter() at the first measured step, and at the end of the last
    ended: float = 0.0
    steps: list[dict[str, float]] = field(default_factory=list)
    summed: int = 0
    scores: dict[str, float] = field(default_factory=dict)
    tables: dict[str, list[dict[str, float | str]]] = field(default_factory=dict)  # rows of traced tables, by name
    cautions: list[str] = field(default_factory=list)  # what went on though it looks wrong

    def note(self, times: dict[str, float], began: float, now: float, *, summed: bool) -> None:
        """Add a measured step, or add it to the sum of all steps."""
        self.began, self.ended = self.began or began, now
        self.summed += summed
        if self.steps and summed:
            total = self.steps[0]
            for name, value in times.items():
                total[name] += value
        else:
            self.steps.append(times if not summed else dict(times))


_PLAN = "plan"  # message tag: servers do not read images, so they receive the size of the plan

def run_job(job: Job, group: Group, site: Site | None = None, make_replica: MakeReplica = replica_for) -> Trace:
    """Train as `job` says, as rank `group.rank`; collective. Ranks beyond `job.workers` have no replica: they serve.

    Raises what the model, the data or the optimiser raise, and GroupError if another rank fails or there are more or
    fewer ranks than the job asks for.
    """
    site = site or Site()
    began = time.perf_counter()
    if group.size != job.ranks:
        asked = f"{job.workers} workers and {job.servers} servers"
        raise GroupError(f"{group.size} ranks can't run a job of {asked}; start a team of {job.ranks}")
    case = (site.use_case or use_case(job.use_case)).for_job(job)
    if group.rank >= job.workers:
        samples, steps = (int(number) for number in group.receive(0, _PLAN)[1])
        plan = Plan(samples, job.global_batch_size, steps, job.seed, job.values["micro_batch"])
        return serve(job, group, case, plan, began)
    if site.checkpoint and group.rank == 0:
        remove_unfinished(Path(site.checkpoint))
    images = Images.of(case, job, site.data_root, site.skipped)
    data, plan, case = images.train, plan_of(job, images.train), case.fitting(images.train)
    for server in range(job.workers, group.size) if group.rank == 0 else ():
        group.send(torch.tensor([plan.samples, plan.steps]), server, _PLAN)
    if job.model_parallel == "none":
        replica = make_replica(case, job, group)
    else:
        cuts = checkpoint.cuts_of(site.checkpoint, job) if site.resume and site.checkpoint else None
        replica = make_model_parallel_replica(case, job, group, data.shape, cuts)
    make, factor = case.optimiser_of(job.optimiser), rate_factor(job, plan)
    sync = make_sync(job, plan, scheduled(make, factor))
    sync.attach(replica, replica.peers(group))
    everybody, group = group, sync.group  # the ranks with a replica, or with the same part of a model
    replica.start_alike(group)
    former = checkpoint.load(site.checkpoint, job, replica, sync) if site.resume and site.checkpoint else []
    # As many decoding threads as the worker has cores; they share those cores with the computation.
    with Loader(data, job.seed, threads=job.cores_per_worker, memory=job.input == "memory") as loader:
        if job.input == "memory" and replica.reads_images:
            _preload(plan, group, loader)
        trace, tracker = Trace(group.rank, startup_seconds=time.perf_counter() - began), None
        if job.learns:
            team = group if replica.sharers is None else everybody
            tracker = EpochTracker(job, plan, images, replica, sync, team, Rate.of(make, factor), site.checkpoint)
            tracker.former = former
        try:
            watch = FiniteWatch(everybody.rank, site.on_nan)
            last = _train(job, site, group, replica, sync, loader, trace, watch, tracker)
            trace.cautions = watch.cautions
            if tracker is not None:
                trace.scores, trace.tables = tracker.finish()
            if site.evaluate and job.scored_on == "none":
                replica.parameters.copy_(sync.model())
                test = case.open("test", site.data_root, skipped=site.skipped)
                trace.scores |= evaluate(replica, group, test, job.per_worker_batch_size, case.loss)
        finally:
            sync.close()
    if job.model_parallel == "pipeline":
        trace.tables |= gather_tables(everybody, replica.traced(state_bytes(sync)), last)
    group.enter("idle")
    return trace


def _preload(plan: Plan, group: Group, loader: Loader) -> None:
    for step in range(plan.steps):
        group.enter("start")  # progress for the board: decoding everything may take long
        for share in plan.shares(step, group.rank, group.size):
            loader.preload(share.epoch, share.sample_ids)


def _input(
    share: Share, group: Group, replica: Replica, sync: Sync, loader: Loader, always: bool, draws: bool = False
) -> Batch:
    """A micro-batch, while the next one starts to be decoded. `always`: also after the last step, so that all steps
    cost the same. Where both the model (`draws`) and the data draw from torch's one generator, nothing is decoded
    while the model computes: in which order the two draw would differ from run to run."""
    take = loader.take if replica.reads_images else loader.labels
    batch = take(share.epoch, share.sample_ids)
    if draws and getattr(loader.data, "draws", False):
        return batch
    upcoming = sync.preview()
    if upcoming is None and always:
        upcoming = sync.plan.shares(share.step + 1, group.rank, group.size)[0]
    if upcoming is not None and replica.reads_images:
        loader.prefetch(upcoming.epoch, upcoming.sample_ids)
    return batch


def _compute(
    share: Share, batch: Batch, replica: Replica, sync: Sync, times: dict[str, float], watch: FiniteWatch
) -> None:
    """Forward and backward pass of one micro-batch, added to `times`."""
    start = time.perf_counter()
    before = {name: getattr(replica, name) for name in (*_PASSES, *_WITHIN)}
    loss = replica.backward(batch, share.weights, sync.layer_ready if share.last else None) / share.scale
    watch.see_loss(loss, share.step, batch=batch)
    sync.observe(loss, float(share.weights.sum()) / share.scale)
    times["train_loss"] += loss
    times["images"] += len(share.sample_ids) if replica.reads_images else 0  # each image counts once
    elapsed = time.perf_counter() - start
    for name, value in before.items():
        times[name] += getattr(replica, name) - value
    # A replica that is a part of a model also waits for other ranks, and exchanges activations, in its passes.
    others = replica.idle_seconds - before["idle_seconds"] + replica.exchange_seconds - before["exchange_seconds"]
    times["compute_seconds"] += elapsed - others


def serve(job: Job, group: Group, case: UseCase, plan: Plan, began: float) -> Trace:
    """Serve on a rank without a replica. The trace has a row for each update, with the step that it belongs to."""
    sync = make_sync(job, plan, scheduled(case.optimiser_of(job.optimiser), rate_factor(job, plan)))
    sync.attach_server(group)
    trace = Trace(group.rank, startup_seconds=time.perf_counter() - began)
    began, link = time.perf_counter(), LinkMeter()
    while (served := sync.serve()) is not None:
        (step, cost), now = served, time.perf_counter()
        group.at_step(step)
        times = dict.fromkeys(STEP_COLUMNS, 0.0) | vars(cost) | link.read() | {"step_seconds": now - began}
        if job.learns or step >= job.warmup_steps:
            trace.note(times, began, now, summed=job.learns)
        began = now
    trace.tables |= sync.tables()
    sync.close()
    group.enter("idle")
    return trace


def _train(
    job: Job, site: Site, group: Group, replica: Replica, sync: Sync, loader: Loader, trace: Trace,
    watch: FiniteWatch, tracker: EpochTracker | None = None,
) -> dict[str, float]:  # fmt: skip
    """The training loop. Returns the costs of the last step.

    input -> compute [-> input -> compute ...] -> wait, exchange, update      once per step
    """
    saved, last = False, dict.fromkeys(STEP_COLUMNS, 0.0)
    # A checkpoint is collective, so workers that take steps of their own have none before all have stopped.
    every = site.checkpoint_every_steps if sync.in_step else 0
    measuring = job.input == "jpeg" and not site.checkpoint and not job.learns and sync.in_step
    times = dict.fromkeys(STEP_COLUMNS, 0.0)
    began, decoded, link = time.perf_counter(), loader.decode_seconds, LinkMeter()
    while (share := sync.next()) is not None:
        group.at_step(share.step)
        group.enter("input")
        start = time.perf_counter()
        batch = _input(share, group, replica, sync, loader, measuring, site.draws)
        group.enter("compute")
        times["input_seconds"] += time.perf_counter() - start
        if site.draws:
            seed_micro_batch(job.seed, batch)
        _compute(share, batch, replica, sync, times, watch)
        if not sync.contributes(share):
            continue
        cost = sync.step()
        replica.stepped(cost.exchange_seconds, cost.update_seconds)
        now, decoding = time.perf_counter(), loader.decode_seconds
        for name, value in vars(cost).items():
            times[name] += value
        times.update(link.read(), step_seconds=now - began, decode_seconds=decoding - decoded)
        if job.learns or share.step >= job.warmup_steps:
            trace.note(times, began, now, summed=job.learns)
        last, times, began, decoded = times, dict.fromkeys(STEP_COLUMNS, 0.0), now, decoding
        ended = tracker is not None and tracker.stepped(share.step, last["train_loss"], last["step_seconds"])
        # Before anybody is told of the epoch: what was reported is never trained again.
        saved = bool(every and (share.step + 1) % every == 0) or (ended and site.after_epoch is not None)
        if saved:
            _save(site, job, group, replica, sync, watch, tracker, share.step)
            began = time.perf_counter()
        if tracker is not None and ended:
            if tracker.over or tracker.stops(site.after_epoch):
                break
            link.read()
            began, decoded = time.perf_counter(), loader.decode_seconds
    if tracker is not None and not sync.in_step:
        tracker.stopped(sync.done)
    if not saved:
        _save(site, job, group, replica, sync, watch, tracker, sync.done - 1)
    return last


def _save(
    site: Site, job: Job, group: Group, replica: Replica, sync: Sync, watch: FiniteWatch, tracker: EpochTracker | None,
    step: int,
) -> None:  # fmt: skip
    """Write the checkpoint after `step`, if this site has one. Collective. Raises NotFiniteError."""
    if site.checkpoint:
        watch.see_parameters(replica.parameters, step)
        checkpoint.save(site.checkpoint, job, group, replica, sync, () if tracker is None else tracker.known, site.data)
