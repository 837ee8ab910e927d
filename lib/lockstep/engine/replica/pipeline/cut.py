"""A model as a sequence of layers, and where this sequence can be cut into stages."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence

from torch import nn

from lockstep.engine.replica.dropout import KeyedDropout


class CutError(ValueError):
    """A model that can't be cut there; the message names the layer, the reason and the fix."""


_SEVERAL_OUTPUTS = (nn.RNNBase, nn.LSTMCell, nn.MultiheadAttention, nn.AdaptiveLogSoftmaxWithLoss)
_VIEWS = (nn.Flatten, nn.Unflatten)  # their output is a view of their input's memory
_DROPOUTS = (KeyedDropout, nn.Dropout)


def flatten(model: nn.Module) -> list[nn.Module]:
    """The layers of `model`, first to last; every plain `nn.Sequential` in it is replaced by its own layers.

    A module with a forward pass of its own stays one layer. Raises CutError if the model itself is one.
    """
    if not _is_row(model):
        raise CutError(
            f"{type(model).__name__} can't be cut between layers: only a torch.nn.Sequential says in which order its "
            "layers run; write it as one, or train it with a data parallel strategy"
        )
    children = model._modules.values()  # not children(), which skips a module that occurs twice
    return [layer for each in children if each is not None for layer in (flatten(each) if _is_row(each) else [each])]


def _is_row(module: nn.Module) -> bool:
    # A subclass may run its layers in another order, or some of them twice.
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


def uncuttable(layers: Sequence[nn.Module]) -> dict[int, str]:
    """Layer -> the reason why no stage can end with it, except for the model's last layer."""
    found: dict[int, str] = {}
    for index, layer in enumerate(layers[:-1]):
        if isinstance(layer, _SEVERAL_OUTPUTS) or getattr(layer, "return_indices", False):
            found[index] = (
                f"{_name(layers, index)} gives more than one tensor, and a stage sends one; cut after the layer that "
                "takes them"
            )
        elif (viewing := _viewing(layers, index)) is not None:
            # torch's pipelining detaches what it has sent in place, which is not possible for a view.
            found[index] = f"{_name(layers, viewing)} only views its input, and a view can't be sent on; cut before it"
    owners: dict[int, list[int]] = {}
    for index, layer in enumerate(layers):
        for parameter in layer.parameters():
            owners.setdefault(id(parameter), []).append(index)
    for shared in owners.values():
        for index in range(shared[0], shared[-1]):
            found[index] = (
                f"{_name(layers, shared[0])} and {_name(layers, shared[-1])} share a parameter, which can't be in two "
                "stages; cut before the one or after the other"
            )
    return found


def _viewing(layers: Sequence[nn.Module], index: int) -> int | None:
    """The layer that makes the output of layer `index` a view, if it is one."""
    while index and _passes_on(layers[index]):
        index -= 1
    return index if isinstance(layers[index], _VIEWS) else None


def _passes_on(layer: nn.Module) -> bool:
    """Whether the layer returns its own input tensor, overwritten or not."""
    dropping_nothing = isinstance(layer, _DROPOUTS) and layer.p == 0.0
    return isinstance(layer, nn.Identity) or dropping_nothing or bool(getattr(layer, "inplace", False))


def check_cuts(layers: Sequence[nn.Module], cuts: Sequence[int], *, with_parameters: bool = True) -> None:
    """Raises CutError unless stages that begin with the layers `cuts` can be made, each with parameters to train."""
    rising = all(before < after for before, after in itertools.pairwise(cuts))
    if not cuts or cuts[0] != 0 or not rising or cuts[-1] >= len(layers):
        raise CutError(
            f"cuts={list(cuts)} for {len(layers)} layers: give the first layer of every stage, rising, from 0 to at "
            f"most {len(layers) - 1}"
        )
    reasons = uncuttable(layers)
    for stage, first in enumerate(cuts[1:]):
        if first - 1 in reasons:
            raise CutError(f"stage {stage} can't end with layer {first - 1}: {reasons[first - 1]}")
    for stage, (first, end) in enumerate(zip(cuts, [*cuts[1:], len(layers)], strict=True)):
        trained = any(parameter.requires_grad for layer in layers[first:end] for parameter in layer.parameters())
        if with_parameters and not trained:
            raise CutError(
                f"stage {stage} has no parameter to train: {_name(layers, first)} to {_name(layers, end - 1)}; join it "
                "with a neighbour"
            )


def stage_module(layers: Sequence[nn.Module], first: int, last: int) -> nn.Sequential:
    """The layers `first` to `last` (inclusive) as a stage: the same modules, but it never writes over its input.

    What a stage receives is a leaf of its graph, which must not be modified in place. So a layer that works in place
    on it (`nn.ReLU(inplace=True)`) is replaced by an equal one that does not; the given layer stays unchanged.
    """
    own = list(layers[first : last + 1])
    for index, layer in enumerate(own):
        if getattr(layer, "inplace", False):
            own[index] = copy.copy(layer)
            own[index].inplace = False  # type: ignore[assignment]
            break
        if not isinstance(layer, _VIEWS) and not _passes_on(layer):
            break
    return nn.Sequential(*own)


def _name(layers: Sequence[nn.Module], index: int) -> str:
    return f"layer {index} ({type(layers[index]).__name__})"
