"""Makes this rank's stages of a use case's model: where it is cut, and the shapes that are sent at the cuts."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lockstep.engine.groups import Group, allgather_object
from lockstep.engine.job import Job
from lockstep.engine.pipelines import partition
from lockstep.engine.pipelines.order import in_flight, order
from lockstep.engine.replica.dropout import SampleKeys, key_dropout
from lockstep.engine.replica.layout import TensorLayout, averaged_buffers
from lockstep.engine.replica.pipeline.cut import check_cuts, flatten, stage_module, uncuttable
from lockstep.engine.replica.pipeline.mesh import Mesh, mesh_of
from lockstep.engine.replica.pipeline.profile import profile, static_costs
from lockstep.engine.replica.torch import MEMORY_FORMATS, formatted

if TYPE_CHECKING:
    from lockstep.engine.usecases import UseCase

PROFILE_REPEATS, PROFILE_WARMUP = 5, 2
BYTES_PER_PARAMETER = 12.0
"""In float32: the parameter, its gradient, and the state of an optimizer with momentum, 4 bytes each."""

# Torch's generator is one per process.
_BUILDING = threading.Lock()
# Cuts that were found by measuring, by everything that they depend on, so that a warm team measures only once.
_FOUND: dict[tuple[Any, ...], list[int]] = {}
_NCCL: weakref.WeakKeyDictionary[Group, dist.ProcessGroup] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Built:
    """The stages of one rank, and what it must know about the others."""

    mesh: Mesh
    cuts: list[int]  # first layer of every stage
    layers: int  # of the whole model
    modules: dict[int, nn.Sequential]  # this rank's stages, by index
    shapes: dict[int, tuple[Tensor, Tensor]]  # of one micro-batch: input and output, on the device `meta`
    parameter_counts: list[int]  # of every stage
    buffer_counts: list[int]
    layout: TensorLayout  # of the whole model

    def ends(self, stage: int) -> tuple[int, int]:
        """The first and the last layer of a stage."""
        return self.cuts[stage], [*self.cuts[1:], self.layers][stage] - 1


def build_stages(
    case: UseCase, job: Job, group: Group, image_shape: tuple[int, ...], cuts: list[int] | None = None
) -> tuple[Built, SampleKeys]:
    """This rank's stages of the model that every rank makes from the job's seed. Collective.

    `image_shape`: channels, height, width. `cuts`: those of an earlier run; None: as `job.partition` says. Raises
    PartitionError or CutError for a model that can't be cut so.
    """
    mesh = mesh_of(job, group)
    layers, keys, layout = _layers(case, job)
    if cuts is None:
        cuts = agree_on_cuts(case, job, group, image_shape)
    check_cuts(layers, cuts)
    bounds = [*cuts, len(layers)]
    own = {index: stage_module(layers, bounds[index], bounds[index + 1] - 1) for index in _own(job, mesh)}
    for index, stage in own.items():
        for copied, layer in zip(stage, layers[bounds[index] :], strict=False):
            layout.paths[copied] = layout.paths[layer]
    parameters, buffers = ([_count(layers, bounds, kind, i) for i in range(job.stages)] for kind in (True, False))
    shapes = _shapes(layers, bounds, job, image_shape, list(own))
    return Built(mesh, cuts, len(layers), own, shapes, parameters, buffers, layout), keys


def _own(job: Job, mesh: Mesh) -> list[int]:
    return mesh.stages(job.stages, job.schedule)


def stages_of(
    case: UseCase, job: Job, group: Group, image_shape: tuple[int, ...]
) -> tuple[Built, list[tuple[int, nn.Sequential]]]:
    """This rank's stages by index, for a probe that measures them without a pipeline."""
    built, _ = build_stages(case, job, group, image_shape)
    return built, list(built.modules.items())


def micro_batch_size(job: Job) -> int:
    return job.global_batch_size // (job.replicas * job.micro_batches)


def _layers(case: UseCase, job: Job) -> tuple[list[nn.Module], SampleKeys, TensorLayout]:
    """The whole model's layers, with keyed dropout, initialised as the sequential model's; and its tensors."""
    keys = SampleKeys(job.seed)
    with _BUILDING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(job.seed)
        model = key_dropout(case.model(), keys)
        model = model if model.training else model.train()
    return flatten(model), keys, TensorLayout.of(model)


def agree_on_cuts(case: UseCase, job: Job, group: Group, image_shape: tuple[int, ...]) -> list[int]:
    """The first layer of every stage, chosen by rank 0 for all. Collective."""
    chosen = _choose(case, job, image_shape) if group.rank == 0 else None
    cuts: list[int] = allgather_object(group, chosen)[0]
    return cuts


def _choose(case: UseCase, job: Job, image_shape: tuple[int, ...]) -> list[int]:
    layers, keys, _ = _layers(case, job)
    if job.partition == "equal_layers":
        return partition.equal_layers(static_costs(layers), job.stages)
    if job.partition == "equal_parameters":
        return partition.equal_parameters(static_costs(layers), job.stages)
    size = micro_batch_size(job)
    asked = (job.stages, job.stages_per_rank, job.stage_memory_bytes, job.schedule, job.micro_batches, job.activations)
    where = (job.device, job.precision, job.memory_format, torch.get_num_threads())
    # The layers' names do not determine where a stage can end: dropout of 0, for one, can't end a stage.
    model = (str(layers), tuple(map(_numbers, layers)), tuple(uncuttable(layers)))
    key = (*model, size, image_shape, *where, *asked)
    if key not in _FOUND:
        keys.sample_ids = torch.arange(size).numpy()
        images = torch.randn(size, *image_shape, generator=torch.Generator().manual_seed(job.seed)).to(job.device)
        images = formatted(images, MEMORY_FORMATS[job.memory_format])
        layers = [layer.to(job.device) for layer in layers]
        # The fastest repetition: the team keeps these cuts, and new memory can make a layer seem several times slower.
        costs = profile(
            layers, images, case.loss, PROFILE_REPEATS, warmup=PROFILE_WARMUP, precision=job.precision, typical=min
        )
        _FOUND[key] = partition.balanced(costs, job.stages, _bound(job, images) if job.stage_memory_bytes else None)
    return _FOUND[key]


def _bound(job: Job, images: Tensor) -> partition.Memory:
    held = [job.micro_batches] * job.stages
    if job.schedule in ("naive", "gpipe", "1f1b"):
        held = list(in_flight(order(job.schedule, job.stages, 1, job.micro_batches)).values())
    recomputed = job.activations == "recomputed"
    return partition.Memory(job.stage_memory_bytes, BYTES_PER_PARAMETER, held, images.nbytes, recomputed)


def _numbers(module: nn.Module, trainable: bool = True) -> int:
    if trainable:
        return sum(each.numel() for each in module.parameters() if each.requires_grad)
    return sum(each.numel() for each, _ in averaged_buffers(module))


def _count(layers: list[nn.Module], bounds: list[int], trainable: bool, stage: int) -> int:
    return sum(_numbers(layer, trainable) for layer in layers[bounds[stage] : bounds[stage + 1]])


def _shapes(
    layers: list[nn.Module], bounds: list[int], job: Job, image_shape: tuple[int, ...], own: list[int]
) -> dict[int, tuple[Tensor, Tensor]]:
    """The shapes of this rank's stages' inputs and outputs, found with a batch of one image of zeros."""
    size, found = micro_batch_size(job), {}
    x = torch.zeros(1, *image_shape)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=job.precision == "bfloat16"):
        for index in range(job.stages):
            before = x
            for layer in layers[bounds[index] : bounds[index + 1]]:
                training, _ = layer.training, layer.eval()
                x = layer(x)
                layer.train(training)
            if index in own:
                found[index] = (_like(before, size, index > 0), _like(x, size, True))
    return found


def _like(one: Tensor, size: int, requires_grad: bool) -> Tensor:
    shape = (size, *one.shape[1:])
    return torch.empty(shape, dtype=one.dtype, device="meta", requires_grad=requires_grad)


def group_of(mesh: Mesh, device: str) -> dist.ProcessGroup:
    """The torch group of a pipeline: gloo, or NCCL for GPUs. Collective over it."""
    group: dist.ProcessGroup = mesh.pipeline.torch_group()
    if not device.startswith("cuda"):
        return group
    if mesh.pipeline not in _NCCL:
        ranks = dist.get_process_group_ranks(group)
        _NCCL[mesh.pipeline] = dist.new_group(ranks, backend="nccl", use_local_synchronization=True)
    return _NCCL[mesh.pipeline]
