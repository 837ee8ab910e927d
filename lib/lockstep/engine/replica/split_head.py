"""Data parallel convolutions with model parallel fully connected layers, the hybrid of Single-to-Multi, section 2.

    images, own share            [own, 3, h, w]   | every rank has all convolutions, and trains them on its share
    convolutions ... flatten     [own, F]         |
        gather rows of all ranks                    F numbers per image are sent
    linear 1, own units          [all, F] -> [all, own units]   | every rank has some of the units, with all of
    ReLU, dropout, unit by unit                                 | their weights, for all images
    linear 2, from own units     [all, own units] -> [all, H]   |
        sum over ranks, own rows                    H numbers per image
    bias 2, ReLU ... output      [own, H] -> [own, classes]     every rank has all of it

The convolutions have most of the work and few parameters; the two linear layers have most of the parameters, 54.5 of
AlexNet's 57.0 million. So these layers exchange activations, and only the other layers exchange gradients. Of the three
schemes of Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks", this is (a), with all
images at once. Splitting the first layer by its outputs and the second by its inputs, so that nothing is sent between
them, is from Shoeybi et al. 2019 (Megatron-LM), section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.engine.data.loader import Batch
from lockstep.engine.groups import Group
from lockstep.engine.job import Job
from lockstep.engine.models.losses import Loss, cross_entropy
from lockstep.engine.replica.base import Ready, flat_views
from lockstep.engine.replica.dropout import KeyedDropout, SampleKeys, key_dropout
from lockstep.engine.replica.layout import TensorLayout
from lockstep.engine.replica.rows import Gather, Rows, SumOwn
from lockstep.engine.replica.torch import TorchReplica

if TYPE_CHECKING:
    from lockstep.engine.usecases import UseCase

UNIT_BY_UNIT = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Hardtanh, nn.Hardswish, nn.Mish),
    *(nn.Sigmoid, nn.Tanh, nn.Softplus, nn.Softsign, nn.Identity, nn.Dropout, KeyedDropout),
)
"""Layers that may be between the two that are split: each unit's output depends on that unit's input alone."""


def find_head(model: nn.Module, ranks: int) -> tuple[int, int]:
    """The indices in `model` of the two linear layers to split: the first two behind the convolutions.

    Raises ValueError, which names what is missing, for a model that has no such two, or too few units for the ranks.
    """
    split = "model_parallel='head' splits the first two nn.Linear behind the convolutions"
    if not isinstance(model, nn.Sequential):
        raise ValueError(f"{split}, which it finds in a flat nn.Sequential only, not in a {type(model).__name__}")
    last = max((place for place, layer in enumerate(model) if _convolves(layer)), default=-1)
    found = {place: layer for place, layer in enumerate(model) if place > last and type(layer) is nn.Linear}
    if len(found) < 2:
        behind = f"behind layer {last}" if last >= 0 else "(and no convolution)"
        raise ValueError(f"{split}; this model has {len(found)} {behind}, not counting any inside another layer")
    first, second = list(found)[:2]
    for place in range(first + 1, second):
        if not isinstance(model[place], UNIT_BY_UNIT):
            raise ValueError(
                f"{split}, here layers {first} and {second}; layer {place} between them is {model[place]}, which does "
                "not work unit by unit, as activations and dropout do"
            )
    hidden = found[first].out_features
    if hidden < ranks:
        raise ValueError(f"{split}; layer {first} has {hidden} units for {ranks} ranks: give at most {hidden} workers")
    return first, second


def _convolves(layer: nn.Module) -> bool:
    return any(isinstance(each, nn.modules.conv._ConvNd) for each in layer.modules())


class Units(nn.Module):
    """A linear layer of some units: [n, inputs] -> [n, own units], or [n, own units] -> [n, outputs]."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight, self.bias)


class Bias(nn.Module):
    """The bias of a linear layer, added in the precision of its input: [n, outputs] -> the same."""

    def __init__(self, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        return x if self.bias is None else x + self.bias.to(x.dtype)


class SplitHead(nn.Module):
    """One rank's part of `model`, whose dropout is keyed already; its own units come last in `modules()`.

    `keys`: the samples of all ranks that are in the forward pass now; those of `model` are this rank's. `split`: shape
    and split dimension of the parameters that are, in the model's order; `origins`: where the two layers stood in it.
    Raises ValueError as `find_head`.
    """

    def __init__(self, model: nn.Module, rows: Rows, keys: SampleKeys) -> None:
        super().__init__()
        rank, ranks = rows.group.rank, rows.group.size
        first, second = find_head(model, ranks)
        assert isinstance(model, nn.Sequential)
        layers = list(model)
        one, two = layers[first], layers[second]
        assert isinstance(one, nn.Linear) and isinstance(two, nn.Linear)
        self.rows, self.input = rows, first
        self.features = nn.Sequential(*layers[:first])
        self.rest = nn.Sequential(Bias(two.bias), *layers[second + 1 :])
        begin = int(torch.arange(one.out_features).tensor_split(ranks)[rank][0])
        self.first = Units(_part(one.weight, rank, ranks), None if one.bias is None else _part(one.bias, rank, ranks))
        self.between = nn.Sequential(*(_own_units(layer, keys, begin) for layer in layers[first + 1 : second]))
        self.second = Units(_part(two.weight, rank, ranks, dim=1), None)
        places = ((one.weight, 0), (one.bias, 0), (two.weight, 1))
        self.split = [(each.shape, dim) for each, dim in places if each is not None and each.requires_grad]
        self.origins = (first, second)
        if _trained(model) != _trained(self.features, self.rest) + sum(shape.numel() for shape, _ in self.split):
            raise ValueError(f"layers {first} and {second} can't be split: they share parameters; give each its own")

    def forward(self, images: Tensor) -> Tensor:
        for replicated in (self.features, self.rest):
            # Without samples these layers only determine the shape; running statistics must not be updated.
            replicated.train(self.training and len(images) > 0)
        rows = self.features(images)
        if rows.dim() != 2:
            raise ValueError(
                f"layer {self.input} gets {list(rows.shape)}, and model_parallel='head' splits an nn.Linear of rows of "
                "numbers only; put an nn.Flatten before it"
            )
        partial = self.second(self.between(self.first(Gather.apply(rows, self.rows))))
        output: Tensor = self.rest(SumOwn.apply(partial, self.rows))
        return output


def _part(whole: Tensor, rank: int, ranks: int, dim: int = 0) -> nn.Parameter:
    """This rank's slice, as a view; the replica copies it into its flat parameters, and the whole can be freed."""
    return nn.Parameter(whole.detach().tensor_split(ranks, dim)[rank], requires_grad=whole.requires_grad)


def _own_units(layer: nn.Module, keys: SampleKeys, first: int) -> nn.Module:
    return KeyedDropout(layer.p, keys, layer.stream, first) if isinstance(layer, KeyedDropout) else layer


def _trained(*modules: nn.Module) -> int:
    """Parameters to train, each counted once."""
    return sum(each.numel() for each in nn.ModuleList(modules).parameters() if each.requires_grad)


class SplitHeadReplica(TorchReplica):
    """`model` (a flat nn.Sequential) with its first two fully connected layers split over the ranks of `group`.

        parameters   | convolutions | bias 2, rest | own units of linear 1 | of linear 2 |
                     |<------- common ------------>|

    Gradients of the own part are whole when `backward` returns, those of the common part are this rank's share's. All
    ranks must call `backward` and `predict` equally often, with a batch of no samples if need be. A sequential
    model's parameters come out of `whole`, and after every step they are a sequential run's.
    """

    skips_empty = False

    def __init__(
        self, model: nn.Module, group: Group, loss: Loss = cross_entropy, seed: int = 0, **options: Any
    ) -> None:
        keys, self.all_keys = SampleKeys(seed), SampleKeys(seed)
        self.sharers, self.rows = group, Rows(group)
        layout = TensorLayout.of(model)
        head = SplitHead(key_dropout(model, keys), self.rows, self.all_keys)
        self.split, self._before = head.split, _trained(head.features)
        one, two = (list(model._modules)[place] for place in head.origins)
        layout.paths.update({head.first: one, head.second: two, head.rest[0]: two})
        frozen = {entry.name for entry in layout.of_kind("frozen")}
        divided = {f"{one}.weight": 0, f"{one}.bias": 0, f"{two}.weight": 1}
        self._divided = {name: dim for name, dim in divided.items() if name in frozen}
        super().__init__(head, loss, seed=seed, layout=layout, **options)
        self.keys = keys

    @property
    def common(self) -> slice:
        return slice(0, self.length - sum(each.numel() for each in self._own(self.rows.group.rank)))

    def backward(self, batch: Batch, weights: np.ndarray, on_ready: Ready | None = None) -> float:
        seconds, sent = self.rows.seconds, self.rows.bytes_sent
        loss = super().backward(batch, weights, on_ready)
        self.exchange_seconds += self.rows.seconds - seconds
        self.forward_seconds -= self._forward_ended - seconds
        self.backward_seconds -= self.rows.seconds - self._forward_ended
        self.bytes_sent += self.rows.bytes_sent - sent
        return loss

    def _forward(self, batch: Batch) -> Any:
        self.all_keys.epoch, self.all_keys.sample_ids = batch.epoch, self.rows.begin(batch.sample_ids)
        output = super()._forward(batch)
        self._forward_ended = self.rows.seconds
        return output

    def _own(self, rank: int) -> list[Tensor]:
        """The shapes of the slices of the split parameters that `rank` holds."""
        whole = ((torch.empty(shape, device="meta"), dim) for shape, dim in self.split)
        return [each.tensor_split(self.rows.group.size, dim)[rank] for each, dim in whole]

    def whole(self, flat: Tensor) -> Tensor:
        """`flat`, laid out as `parameters`, in the sequential model's order, on the CPU. Collective."""
        before, common, flat = self._before, self.common.stop, flat.detach().cpu()
        own = [flat_views(each, self._own(rank)) for rank, each in enumerate(self.rows.group.allgather(flat[common:]))]
        split = [torch.cat(pieces, dim) for pieces, (_, dim) in zip(zip(*own, strict=True), self.split, strict=True)]
        return torch.cat([flat[:before], *(each.view(-1) for each in split), flat[before:common]])

    def part_of(self, whole: Tensor) -> Tensor:
        sizes = [shape.numel() for shape, _ in self.split]
        if whole.numel() != self.common.stop + sum(sizes):
            raise ValueError(f"{whole.numel()} numbers for a model of {self.common.stop + sum(sizes)} parameters")
        before, *split, rest = whole.split([self._before, *sizes, self.common.stop - self._before])
        rank, ranks = self.rows.group.rank, self.rows.group.size
        own = [
            each.view(shape).tensor_split(ranks, dim)[rank].reshape(-1)
            for each, (shape, dim) in zip(split, self.split, strict=True)
        ]
        return torch.cat([before, rest, *own])

    def common_others(self) -> dict[str, Tensor]:
        return {name: each for name, each in self.others().items() if name not in self._divided}

    def whole_others(self) -> dict[str, Tensor]:
        found = self.others()
        for name, dim in self._divided.items():
            found[name] = torch.cat(self.rows.group.allgather(found[name].cpu().contiguous()), dim)
        return found

    def others_of(self, whole: Mapping[str, Tensor]) -> dict[str, Tensor]:
        rank, ranks = self.rows.group.rank, self.rows.group.size
        own = {name: whole[name].tensor_split(ranks, dim)[rank] for name, dim in self._divided.items()}
        return {**whole, **own}


def split_head_replica(case: UseCase, job: Job, group: Group) -> SplitHeadReplica:
    """This rank's part of the model of `case`, initialised from the job's seed as a sequential one's. Collective.

    Raises ValueError if the model has no head to split (see `find_head`).
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(job.seed)
        model = case.model()
    return SplitHeadReplica(
        model,
        group,
        case.loss,
        job.seed,
        device=f"cuda:{group.rank % torch.cuda.device_count()}" if job.device == "cuda" else job.device,
        precision=job.precision,
        memory_format=job.memory_format,
    )
