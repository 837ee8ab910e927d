"""Where a step's time goes, by kind of operator: seconds measured by a profiler, FLOP and bytes counted.

    forward + backward of one batch        on the machine: seconds of each kind (torch's or TensorFlow's profiler)
    the same on torch's `meta` device      nothing is computed: FLOP and bytes of each kind (dispatch mode)

FLOP / seconds against the measured matrix peak, and bytes / seconds against the measured copy bandwidth, say which
kind is bound by what: a roofline (Williams, Waterman, Patterson 2009).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from lockstep.engine.data.loader import Batch, Loader
from lockstep.engine.groups import Group
from lockstep.engine.job import Job
from lockstep.engine.replica import Replica, TorchReplica
from lockstep.engine.replica.bfloat16 import LOWERED
from lockstep.engine.sync import SYNCS, Plan
from lockstep.engine.training.loop import Site, Trace
from lockstep.engine.training.replicas import replica_for
from lockstep.engine.usecases import UseCase, use_case

KINDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("convolution", ("convolution", "conv2d", "conv_")),
    ("matrix product", ("addmm", "mm", "bmm", "linear", "matmul", "baddbmm")),
    ("pooling", ("max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool")),
    ("ReLU", ("relu", "threshold", "clamp_min")),
    ("copies and casts", ("copy_", "_to_copy", "clone", "contiguous", "to_dense", "to_mkldnn", "cat")),
)
OTHER = "other"
_Event = tuple[str, float, int]  # kind, seconds, calls
UNCOUNTED = ("copies and casts", OTHER)
"""Kinds whose bytes can't be predicted: what is copied depends on the layouts that a machine's kernels use."""


_OF_TENSORFLOW: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("convolution", ("Conv2D", "Conv3D")),
    ("matrix product", ("MatMul",)),
    ("pooling", ("MaxPool", "AvgPool")),
    ("ReLU", ("Relu",)),
    ("copies and casts", ("Transpose", "Concat", "Split", "Cast", "Copy", "Pack", "Slice", "Reshape", "Identity")),
)


def tensorflow_operator_kind(operator: str) -> str:
    """The kind of an operator of TensorFlow such as `_MklNativeConv2DBackpropInput`: one of KINDS, else OTHER.

    A bias that is added within a convolution belongs to it, as it does in torch.
    """
    return next((kind for kind, parts in _OF_TENSORFLOW if any(part in operator for part in parts)), OTHER)


def operator_kind(operator: str) -> str:
    """The kind of an ATen operator such as `aten::mkldnn_convolution`: one of KINDS, else OTHER."""
    name = operator.rpartition("::")[2].removeprefix("mkldnn_").removeprefix("cudnn_").lstrip("_")
    for kind, starts in KINDS:
        if any(name.startswith(start.lstrip("_")) for start in starts):
            return kind
    return OTHER


@dataclass
class Count:
    """FLOP (2 per multiplication with addition) and bytes of tensors read and written, by kind of operator."""

    flops: Counter[str] = field(default_factory=Counter)
    moved: Counter[str] = field(default_factory=Counter)  # bytes

    @property
    def total_flops(self) -> int:
        return sum(self.flops.values())


class _Counting(TorchDispatchMode):
    """Sees every operator of the forward and the backward pass. A view moves nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.count = Count()

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: tuple[Any, ...] = (), options: dict[str, Any] | None = None
    ) -> Any:
        options = options or {}
        result = function(*arguments, **options)
        kind = operator_kind(str(function).replace(".", "::", 1).partition(".")[0])
        packet = function._overloadpacket
        if packet in flop_registry:
            self.count.flops[kind] += int(flop_registry[packet](*arguments, **options, out_val=result))
        if not function.is_view:
            self.count.moved[kind] += _bytes((arguments, options)) + _bytes(result)
        return result


def _bytes(values: Any) -> int:
    return sum(leaf.numel() * leaf.element_size() for leaf in tree_leaves(values) if isinstance(leaf, Tensor))


def count(model: Callable[[], nn.Module], shape: Iterable[int], batch: int, precision: str = "float32") -> Count:
    """The least that a training step of `batch` images [channels, height, width] = `shape` must compute and move.

    Nothing is computed or allocated (torch's meta device). Bytes: every operator's operands read and results written
    once, as if nothing stayed in the cache between operators. The optimiser is not in it.
    """
    with torch.device("meta"):
        network, images = model().train(), torch.empty(batch, *shape)
        if precision == "bfloat16":
            # As autocast would, which does nothing on this device. Its casts of weights are not counted.
            images = images.bfloat16()
            for layer in network.modules():
                if isinstance(layer, LOWERED):
                    layer.bfloat16()
        counting = _Counting()
        with counting:
            network(images).float().sum().backward()
    return counting.count


def flops_per_image(case: UseCase, shape: Iterable[int]) -> float:
    """FLOP of a forward and a backward pass: matrix products and convolutions, of one image."""
    return float(count(case.model, shape, 1).total_flops)


def run_profile(job: Job, group: Group, site: Site | None = None) -> Trace:
    """`job.warmup_steps` plain steps, then one whose forward and backward pass run under the framework's profiler.

    One worker. The trace's table `operators` has a row per kind: seconds, share (of the operators' own time),
    calls, flops, bytes (NaN of TensorFlow, which fuses operators). The profiler costs some microseconds for each
    operator.
    """
    assert site is not None
    case = (site.use_case or use_case(job.use_case)).for_job(job)
    data = case.open("train", site.data_root, job.images, site.skipped)
    case = case.fitting(data)
    plan = Plan(len(data), job.global_batch_size, job.warmup_steps + 1, job.seed)
    replica = replica_for(case, job, group)
    sync = SYNCS[job.sync](plan, case.optimiser_of(job.optimiser))
    sync.attach(replica, group)
    with Loader(data, job.seed, threads=job.cores_per_worker) as loader:
        while (share := sync.next()) is not None:
            group.at_step(share.step)
            batch = loader.take(share.epoch, share.sample_ids)
            group.enter("compute")
            if share.step < job.warmup_steps:
                replica.backward(batch, share.weights)
                sync.step()
                continue
            events = _profiled(replica, batch, share.weights)
    sync.close()
    counted = count(case.model, data.shape, len(batch), job.precision)
    table = _by_kind(events, counted, moved=job.framework == "torch")
    convolutions = table[0]["flops"] / table[0]["seconds"] if table[0]["seconds"] else float("nan")
    scores = {"flops_per_image": flops_per_image(case, data.shape), "flops_per_second": convolutions}
    return Trace(group.rank, scores=scores, tables={"operators": table})


def _profiled(replica: Replica, batch: Batch, weights: np.ndarray) -> list[_Event]:
    """The operators of one forward and backward pass of the replica, by kind."""
    if not isinstance(replica, TorchReplica):
        from lockstep.engine.replica.tensorflow.replica import TensorFlowReplica  # TensorFlow may be missing

        assert isinstance(replica, TensorFlowReplica), type(replica)
        return [(tensorflow_operator_kind(name), seconds, 1) for name, seconds in replica.profiled(batch, weights)]
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        replica.backward(batch, weights)
    return [
        # An operator's own time, without the operators that it calls.
        (operator_kind(event.key), event.self_cpu_time_total / 1e6, event.count)
        for event in profiled.key_averages()
        if event.key.startswith(("aten::", "mkldnn::", "autograd::", "torch::"))
    ]


def _by_kind(events: Iterable[_Event], counted: Count, *, moved: bool) -> list[dict[str, Any]]:
    seconds: defaultdict[str, float] = defaultdict(float)
    calls: Counter[str] = Counter()
    for kind, own, times in events:
        seconds[kind] += own
        calls[kind] += times
    whole = sum(seconds.values())
    return [
        {
            "operators": kind,
            "seconds": seconds[kind],
            "share": seconds[kind] / whole,
            "calls": calls[kind],
            "flops": counted.flops[kind],
            "bytes": float(counted.moved[kind]) if moved and kind not in UNCOUNTED else float("nan"),
        }
        for kind in (*(name for name, _ in KINDS), OTHER)
    ]
