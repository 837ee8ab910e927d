"""The costs of a pipeline's layers and stages by themselves, without waiting for each other.

The balanced partition is made from `run_layers`. A step is predicted from `run_stage_times`: all ranks compute at once,
since stages that share a memory bus slow each other down, but none of them waits for another.

    rank 0   | F B F B | F I W F I W | update | F B F B | F I W ...      until all have done as many turns as asked
    rank 1   | F B F B | F I W F I W | update | F B F B | F I W ...      I, W: the backward pass in two halves
"""

from __future__ import annotations

import math
import statistics
import time
from collections import defaultdict

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining._backward import stage_backward, stage_backward_input, stage_backward_weight

from lockstep.engine.groups import Group, allgather_object
from lockstep.engine.job import Job
from lockstep.engine.pipelines.order import KINDS
from lockstep.engine.replica.dropout import KeyedDropout
from lockstep.engine.replica.pipeline.building import Built, group_of, micro_batch_size, stages_of
from lockstep.engine.replica.pipeline.cut import flatten
from lockstep.engine.replica.pipeline.profile import profile
from lockstep.engine.replica.pipeline.stage import Layers
from lockstep.engine.replica.torch import MEMORY_FORMATS
from lockstep.engine.training.loop import Site, Trace
from lockstep.engine.training.replicas import torch_replica
from lockstep.engine.usecases import UseCase, use_case

Rows = list[dict[str, float | str]]

# Small, so that many updates with the same gradient change the parameters little.
_GRADIENT = 1e-6
# The first update allocates the optimizer's state, so memory has its final layout only from the second turn on.
_WARMUP_TURNS = 2


def run_layers(job: Job, group: Group, site: Site | None = None) -> Trace:
    """What every layer of the model costs for a micro-batch, measured by rank 0 while the others sleep.

    The trace's table `layers` has a row per layer: layer, name, parameters, micro_batch_size, forward_seconds,
    backward_seconds (medians over `job.steps`), output_bytes, saved_bytes (see `lockstep.engine.pipelines.partition`).
    Raises CutError for a model that is not a sequence of layers.
    """
    assert site is not None
    trace = Trace(group.rank)
    if group.rank:
        return trace
    case, shape = _opened(job, site)
    replica, size = torch_replica(case, job, group), micro_batch_size(job)
    _key(replica.model, size)
    images = torch.randn(size, *shape).to(replica.device)
    group.enter("compute")
    costs = profile(
        flatten(replica.model),
        images.contiguous(memory_format=replica.memory_format),
        case.loss,
        repeats=job.steps,
        warmup=job.warmup_steps,
        accumulated=job.micro_batches > 1,
        precision=job.precision,
    )
    trace.tables["layers"] = [
        {
            "layer": index,
            "name": cost.name,
            "parameters": cost.parameters,
            "micro_batch_size": size,
            "forward_seconds": cost.forward_seconds,
            "backward_seconds": cost.backward_seconds,
            "output_bytes": cost.output_bytes,
            "saved_bytes": cost.saved_bytes,
        }
        for index, cost in enumerate(costs)
    ]
    return trace


def run_stage_times(job: Job, group: Group, site: Site | None = None) -> Trace:
    """Seconds of one micro-batch in every stage, with all ranks busy at once and nobody waiting. Collective.

    The trace of rank 0 has the table `stages`, a row per rank and stage: rank, replica, stage, first_layer, last_layer,
    parameters, forward_seconds, backward_seconds, input_backward_seconds and weight_backward_seconds (NaN where
    activations are recomputed), send_seconds (its output to the next stage's rank: half a ping-pong; NaN for the last
    stage, 0 within a rank), update_seconds (of all the rank's stages together, on each of its rows). Medians over
    `job.steps` turns or more. Of a step's micro-batches the first differs, having no gradient to add to: their mean.
    """
    assert site is not None
    case, shape = _opened(job, site)
    built, own = stages_of(case, job, group, shape)
    device = torch.device(f"cuda:{group.rank % torch.cuda.device_count()}" if job.device == "cuda" else job.device)
    rank = _Rank(job, case, [IsolatedStage(job, case, built, index, module, device) for index, module in own])
    turn_seconds = 0.0
    for _ in range(max(job.warmup_steps, _WARMUP_TURNS)):
        turn_seconds = rank.turn()
    rank.forget()
    # A rank with short stages takes more turns, so that the others are measured beside a busy rank until the end.
    longest = max(allgather_object(group, turn_seconds))
    group.barrier()
    until, turns = time.perf_counter() + job.steps * longest, 0
    while turns < job.steps or time.perf_counter() < until:
        group.at_step(turns)
        group.enter("compute")
        rank.turn()
        turns += 1
    group.enter("wait")
    group.barrier()
    sends = _send_seconds(job, built, device)
    gathered = allgather_object(group, [{"rank": group.rank} | row for row in rank.rows(built, sends)])
    tables = {} if group.rank else {"stages": [row for rows in gathered for row in rows]}
    return Trace(group.rank, tables=tables)


def _opened(job: Job, site: Site) -> tuple[UseCase, tuple[int, ...]]:
    """The use case of `job`, and the shape of one of its images."""
    case = (site.use_case or use_case(job.use_case)).for_job(job)
    data = case.open("train", site.data_root, job.images, site.skipped)
    return case.fitting(data), data.shape


def _key(model: nn.Module, samples: int) -> None:
    """Give keyed dropout the sample ids that it needs; any will do."""
    for layer in model.modules():
        if isinstance(layer, KeyedDropout):
            layer.keys.sample_ids = torch.arange(samples).numpy()


class IsolatedStage:
    """One stage, with an input and a gradient of the right shapes in place of its neighbors."""

    def __init__(
        self, job: Job, case: UseCase, built: Built, index: int, module: nn.Sequential, device: torch.device
    ) -> None:
        given, made = built.shapes[index]
        _key(module, len(given))
        self.index, self.first, self.last = index, index == 0, index == job.stages - 1
        recomputed, memory_format = job.activations == "recomputed", MEMORY_FORMATS[job.memory_format]
        self.layers = Layers(module, device, job.precision, recomputed, memory_format).to(device).train()
        self.input = torch.randn(given.shape, device=device).to(given.dtype)  # contiguous, like a received tensor
        self.gradient = torch.full(made.shape, _GRADIENT, dtype=made.dtype, device=device)
        self.labels = torch.zeros(len(given), dtype=torch.int64, device=device)
        self.loss = case.loss
        # By action, and whether the micro-batch was the first.
        self.seconds: dict[tuple[str, bool], list[float]] = defaultdict(list)

    def micro_batch(self, halves: bool, first: bool) -> None:
        """Forward and backward pass, as torch's PipelineStage runs them. `first`: there are no gradients to add to."""
        given = self.input.detach().requires_grad_(not self.first)
        start = _now(given)
        output = self.layers(given)
        if self.last:
            output = (self.loss(output, self.labels) * _GRADIENT).sum()
        start = self._note("forward", first, start)
        gradients = None if self.last else [self.gradient]
        groups = None
        if halves and not self.first:
            _, groups = stage_backward_input([output], gradients, [given], self.layers.parameters())
        if halves:  # the first stage's input needs no gradient, so all of it belongs to the second half
            start = self._note("input_backward", first, start)
        if groups is not None:
            stage_backward_weight(self.layers.parameters(), groups)
        else:
            stage_backward(output if self.last else [output], gradients, [given])
        self._note("weight_backward" if halves else "backward", first, start)

    def _note(self, action: str, first: bool, start: float) -> float:
        now = _now(self.input)
        self.seconds[action, first].append(now - start)
        return now

    def mean_seconds(self, action: str, firsts: int, others: int) -> float:
        """The mean over a step's micro-batches: `firsts` without earlier gradients, `others` with; NaN if not run."""
        if (action, True) not in self.seconds:
            return math.nan
        first = statistics.median(self.seconds[action, True])
        return (firsts * first + others * statistics.median(self.seconds[action, False] or [first])) / (firsts + others)


class _Rank:
    """The stages of one rank and their optimiser."""

    def __init__(self, job: Job, case: UseCase, stages: list[IsolatedStage]) -> None:
        self.stages = stages
        # With several replicas, gradients accumulate in a zeroed buffer, so that no micro-batch is a first one.
        self.firsts = 1 if job.replicas == 1 else 0
        self.others = job.micro_batches - self.firsts
        # Torch has no schedule with halves and recomputed activations.
        self.ways = (False, True) if job.activations == "kept" else (False,)
        parameters = [each for stage in stages for each in stage.layers.parameters() if each.requires_grad]
        self.optimiser = case.optimiser_of(job.optimiser)(parameters)
        self.update_seconds: list[float] = []

    def turn(self) -> float:
        """Two micro-batches (one, if a step has no more) in each way, then an update. Returns the seconds in total."""
        began = time.perf_counter()
        for halves in self.ways:
            self.optimiser.zero_grad(set_to_none=True)
            for first in (True, False) if self.others else (True,):
                for stage in self.stages:
                    stage.micro_batch(halves, first)
        start = _now(self.stages[0].input)
        self.optimiser.step()
        now = _now(self.stages[0].input)
        self.update_seconds.append(now - start)
        return now - began

    def forget(self) -> None:
        """Discard the measurements of the warm-up."""
        self.update_seconds = []
        for stage in self.stages:
            stage.seconds.clear()

    def rows(self, built: Built, sends: dict[int, float]) -> Rows:
        rows: Rows = []
        for stage in self.stages:
            first, last = built.ends(stage.index)
            row: dict[str, float | str] = {"replica": built.mesh.replica, "stage": stage.index}
            row |= {"first_layer": first, "last_layer": last, "parameters": built.parameter_counts[stage.index]}
            for action in KINDS:
                row[f"{action}_seconds"] = stage.mean_seconds(action, self.firsts, self.others)
            row["send_seconds"] = sends.get(stage.index, math.nan)
            rows.append(row | {"update_seconds": statistics.median(self.update_seconds)})
        return rows


def _send_seconds(job: Job, built: Built, device: torch.device) -> dict[int, float]:
    """Stage of this rank -> half of a ping-pong of its output with the rank of the next stage. Collective."""
    pipeline, own_rank = built.mesh.pipeline, built.mesh.pipeline_rank
    owns = allgather_object(pipeline, list(built.modules))
    rank_of_stage = {stage: each for each, own in enumerate(owns) for stage in own}
    torch_group = group_of(built.mesh, str(device))
    found: dict[int, float] = {}
    for stage in range(job.stages - 1):
        source, goal = rank_of_stage[stage], rank_of_stage[stage + 1]
        pipeline.barrier()
        if source == goal == own_rank:
            found[stage] = 0.0
        elif own_rank in (source, goal):
            like = built.shapes[stage][1] if own_rank == source else built.shapes[stage + 1][0]
            message = torch.ones(like.shape, dtype=like.dtype, device=device)
            seconds = _ping_pong(
                message, torch_group, goal if own_rank == source else source, own_rank == source, job.steps
            )
            if own_rank == source:
                found[stage] = seconds
    return found


def _ping_pong(message: Tensor, group: dist.ProcessGroup, peer: int, begins: bool, times: int) -> float:
    """Half the median seconds of `message` to rank `peer` of `group` and back, after a first turn that connects."""
    ways = (_send, _receive) if begins else (_receive, _send)
    seconds = []
    for _ in range(times + 1):
        start = _now(message)
        for way in ways:
            way(message, group, peer)
        seconds.append((_now(message) - start) / 2)
    return statistics.median(seconds[1:])


def _send(message: Tensor, group: dist.ProcessGroup, peer: int) -> None:
    dist.send(message, group=group, group_dst=peer)


def _receive(message: Tensor, group: dist.ProcessGroup, peer: int) -> None:
    dist.recv(message, group=group, group_src=peer)


def _now(like: Tensor) -> float:
    if like.is_cuda:
        torch.cuda.synchronize(like.device)
    return time.perf_counter()
