"""A reader's own loss, in any form that torch knows, as one value per sample.

    "mse"                               a name of `LOSSES`
    nn.CrossEntropyLoss(), nn.MSELoss() a copy of the module, whose reduction is "none"
    torch.nn.functional.mse_loss        the function, with reduction="none"
    a function of one's own             as it is: it gives one value per sample, of what the model returns

All but the last take the logits out of what the model returns (`lockstep.engine.models.losses.logits_in`). Where a
sample has several values, its loss is their mean (of a loss with reduction="batchmean" their sum), without the places
whose label is `ignore_index`.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from lockstep.engine.data.errors import DataError
from lockstep.engine.data.sources import are_classes
from lockstep.engine.job import JobError
from lockstep.engine.models.losses import Loss, binary_cross_entropy, cross_entropy, logits_in

LOSSES: dict[str, Callable[..., Tensor]] = {
    "cross_entropy": nn.functional.cross_entropy,
    "binary_cross_entropy": nn.functional.binary_cross_entropy_with_logits,
    "mse": nn.functional.mse_loss,
    "l1": nn.functional.l1_loss,
    "huber": nn.functional.huber_loss,
}
"""The names that `loss` may have, and torch's functions behind them."""

_OF_INDICES = (
    nn.functional.cross_entropy,
    nn.functional.nll_loss,
    nn.functional.multi_margin_loss,
    nn.functional.multilabel_margin_loss,
)
"""Torch's losses whose labels are numbers of classes. Of all others, output and labels are of one shape."""
_OF_PLACES = (nn.functional.cross_entropy, nn.functional.nll_loss)
_OF_TWO = (nn.functional.binary_cross_entropy, nn.functional.binary_cross_entropy_with_logits)
_OF_LABELS = (*_OF_TWO, nn.functional.multilabel_soft_margin_loss)
_OF_NUMBERS = (
    nn.functional.mse_loss, nn.functional.l1_loss, nn.functional.smooth_l1_loss, nn.functional.huber_loss,
)  # fmt: skip
_OF_MODULES: dict[type[nn.Module], Any] = {
    nn.CrossEntropyLoss: nn.functional.cross_entropy,
    nn.NLLLoss: nn.functional.nll_loss,
    nn.MultiMarginLoss: nn.functional.multi_margin_loss,
    nn.MultiLabelMarginLoss: nn.functional.multilabel_margin_loss,
    nn.BCELoss: nn.functional.binary_cross_entropy,
    nn.BCEWithLogitsLoss: nn.functional.binary_cross_entropy_with_logits,
    nn.MultiLabelSoftMarginLoss: nn.functional.multilabel_soft_margin_loss,
    nn.MSELoss: nn.functional.mse_loss,
    nn.L1Loss: nn.functional.l1_loss,
    nn.SmoothL1Loss: nn.functional.smooth_l1_loss,
    nn.HuberLoss: nn.functional.huber_loss,
}
_OWN: dict[Any, Any] = {
    cross_entropy: nn.functional.cross_entropy,
    binary_cross_entropy: nn.functional.binary_cross_entropy_with_logits,
}
_IGNORED = (
    "ignore_index={} occurs in the {} labels: each sample's loss is the mean over its own places that count, and a "
    "batch's the mean over its samples; torch divides by the places of the whole batch"
)
_OF_A_SAMPLE = "let it return one value per sample: of torch's own losses, with reduction='none'"


class PerSample:
    """One of torch's losses, with reduction "none": (what a model returns, labels) -> float32 [samples].

    `like`: the function of torch.nn.functional that it computes. `summed`: a sample's loss is the sum of its values.
    Raises ValueError for an output that has not the shape of the labels, which torch would spread over each other,
    where the loss compares them number by number.
    """

    def __init__(self, loss: Callable[..., Tensor], like: Any, summed: bool = False) -> None:
        self.loss, self.summed = loss, summed
        self.of_indices, self.of_places = like in _OF_INDICES, like in _OF_PLACES
        self.of_several = like is nn.functional.multilabel_margin_loss  # classes of a sample, in a row that -1 ends
        self.of_probability = like is nn.functional.binary_cross_entropy  # the model's output is one, and no logit
        self.outputs_per_class: bool | None = None  # True: one output for each; False: one logit for two of them
        if self.of_indices or like in _OF_TWO:
            self.outputs_per_class = self.of_indices
        # What test data are scored by where their labels are no classes.
        self.scored = "labels" if like in _OF_LABELS else "numbers" if like in _OF_NUMBERS else "loss"
        given = getattr(loss, "ignore_index", getattr(loss, "keywords", {}).get("ignore_index", -100))
        self.ignored: int | None = given if self.of_places else None

    def __call__(self, output: Any, labels: Tensor) -> Tensor:
        logits = logits_in(output).float()
        if told := self._unfit(logits, labels):
            raise ValueError(told)
        if not self.of_indices:
            logits, labels = logits.reshape(labels.shape), labels.to(logits.dtype)
        if isinstance(self.loss, nn.Module):
            self.loss.to(logits.device)  # weights of classes
        losses = self.loss(logits, labels)
        if losses.dim() < 2:
            return losses
        if self.summed:
            return losses.flatten(1).sum(1)
        if self.ignored is None or labels.is_floating_point():
            return losses.flatten(1).mean(1)
        counted = (labels != self.ignored).flatten(1).sum(1)
        return losses.flatten(1).sum(1) / counted.clamp(min=1)

    def _unfit(self, logits: Tensor, labels: Tensor) -> str:
        """Why these labels are none for this loss, or for this output; empty if they are."""
        if not self.of_indices:
            if len(logits) == len(labels) and _beyond_one(logits) == _beyond_one(labels):
                return ""
            return (
                f"the model's output is {list(logits.shape)} and the labels are {list(labels.shape)}; this loss "
                "compares them number by number: let both be of one shape"
            )
        if labels.dim() == 1 and labels.is_floating_point():
            return (
                "the labels are floats; for classes give whole numbers (labels.astype('int64')), for numbers to reach "
                "loss='mse'"
            )
        if self.of_places and labels.dim() == logits.dim() == 2 and not labels.is_floating_point():
            return (
                f"the labels are whole numbers {list(labels.shape)}, and this loss takes one class per sample; for "
                "several labels of 0 and 1 give loss='binary_cross_entropy', of one-hot rows labels.argmax(1)"
            )
        return ""

    def check_labels(self, labels: NDArray[Any], name: str) -> str:
        """What a reader should know of all labels of the data called `name`; empty if nothing. Raises DataError for
        labels that this loss would take without a word, and that mean something else."""
        wrong, takes = np.zeros(0, bool), ""
        if labels.dtype.kind == "f" and self.of_places and labels.ndim > 1:
            wrong = (labels < 0).any(axis=1) | (np.abs(labels.sum(axis=1) - 1) > 1e-3)
            takes = "a row of probabilities for each sample, none negative, of sum 1; give loss='binary_cross_entropy' "
            takes += "for several labels of 0 and 1"
        elif self.outputs_per_class is False and not are_classes(labels):  # their number is told of in the first pass
            wrong, takes = (labels < 0) | (labels > 1), "labels from 0 to 1"
        if wrong.any():
            sample = int(np.argwhere(wrong)[0][0])
            told = f"the {name} label of sample {sample} is {labels[sample].tolist()}, and this loss takes {takes}"
            raise DataError(f"{told}; for numbers to reach give loss='mse'")
        ignored = self.ignored is not None and labels.dtype.kind == "i" and bool((labels == self.ignored).any())
        return _IGNORED.format(self.ignored, name) if ignored else ""


def takes_numbers(loss: Loss) -> bool:
    """Is `loss` known to compare numbers, so that whole numbers as labels are no classes?"""
    return isinstance(loss, PerSample) and loss.outputs_per_class is None


def _beyond_one(values: Tensor) -> list[int]:
    """The dimensions of a sample without those of size 1."""
    return [size for size in values.shape[1:] if size != 1]


def read_loss(loss: Any) -> Loss:
    """`loss` as one value per sample. Raises JobError for what is none, and for torch's losses whose reduction is given
    as another one than "none"."""
    if isinstance(loss, str):
        if loss not in LOSSES:
            raise JobError(f"loss={loss!r} does not exist; there are: {', '.join(LOSSES)}, or give a function")
        return read_loss(LOSSES[loss])
    if isinstance(loss, type) and issubclass(loss, nn.Module):
        raise JobError(f"loss={loss.__name__} is a class; give an object: {loss.__name__}()")
    if isinstance(loss, nn.Module):
        return _of_module(loss)
    if not callable(loss):
        raise JobError(f"loss={loss!r} can't be called; give a function (output, labels) or one of {', '.join(LOSSES)}")
    like = next((like for own, like in _OWN.items() if own is loss), None)
    return _of_function(loss) if like is None else PerSample(loss, like)


def _of_module(loss: nn.Module) -> Loss:
    name, kinds = type(loss).__name__, type(loss).__mro__
    if any(each.requires_grad for each in loss.parameters()):
        raise JobError(f"loss={name}() has parameters to train; make them part of the model")
    if not hasattr(loss, "reduction"):
        return loss
    ours = nn.MSELoss.__module__
    of_torch = [kind for kind in kinds if kind.__module__ == ours and not kind.__name__.startswith("_")]
    if loss.reduction not in ("none", "mean", *(("batchmean",) if of_torch else ())):
        raise JobError(f"loss={name}(reduction={loss.reduction!r}) gives one value per batch; {_OF_A_SAMPLE}")
    alone: Any = copy.deepcopy(loss)
    alone.reduction = "none"
    if not of_torch:
        return alone  # type: ignore[no-any-return]
    like = next((_OF_MODULES[kind] for kind in of_torch if kind in _OF_MODULES), of_torch[0])
    return PerSample(alone, like, summed=loss.reduction == "batchmean")


def _of_function(loss: Any) -> Loss:
    inner: Any = loss
    given: dict[str, Any] = {}
    if isinstance(loss, functools.partial) and not loss.args:
        inner, given = loss.func, loss.keywords
    named = getattr(inner, "__name__", "")
    # Only what is written in Python has a signature; torch's losses all are.
    of_torch = named and getattr(nn.functional, named, None) is inner and inspect.isfunction(inner)
    if not of_torch or "reduction" not in inspect.signature(inner).parameters:
        own: Loss = loss
        return own
    if given.get("reduction", "none") != "none":
        raise JobError(f"loss={named} with reduction={given['reduction']!r} gives one value per batch; {_OF_A_SAMPLE}")
    return PerSample(functools.partial(loss, reduction="none"), inner)
