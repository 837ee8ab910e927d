"""A reader's own loss, in any form that torch knows, as one value per sample.

    "mse"                               a name of `LOSSES`
    nn.CrossEntropyLoss(), nn.MSELoss() a copy of the module, whose reduction is "none"
    torch.nn.functional.mse_loss        the function, with reduction="none"
    a function of one's own             as it is: it gives one value per sample, of what the model returns

All but the last take the logits out of what the model returns (`lockstep.engine.models.losses.logits_in`). Where a
sample has several values, its loss is their mean.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

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
_OF_TWO = (nn.functional.binary_cross_entropy, nn.functional.binary_cross_entropy_with_logits)
_OF_MODULES: dict[type[nn.Module], Any] = {
    nn.CrossEntropyLoss: nn.functional.cross_entropy,
    nn.NLLLoss: nn.functional.nll_loss,
    nn.MultiMarginLoss: nn.functional.multi_margin_loss,
    nn.MultiLabelMarginLoss: nn.functional.multilabel_margin_loss,
    nn.BCELoss: nn.functional.binary_cross_entropy,
    nn.BCEWithLogitsLoss: nn.functional.binary_cross_entropy_with_logits,
}
_OWN: dict[Any, Any] = {
    cross_entropy: nn.functional.cross_entropy,
    binary_cross_entropy: nn.functional.binary_cross_entropy_with_logits,
}
_OF_A_SAMPLE = "let it return one value per sample: of torch's own losses, with reduction='none'"


class PerSample:
    """One of torch's losses, with reduction "none": (what a model returns, labels) -> float32 [samples].

    `like`: the function of torch.nn.functional that it computes. Raises ValueError for an output that has not the shape
    of the labels, which torch would spread over each other, where the loss compares them number by number.
    """

    def __init__(self, loss: Callable[..., Tensor], like: Any) -> None:
        self.loss = loss
        self.of_indices = like in _OF_INDICES
        self.outputs_per_class: bool | None = None  # True: one output for each; False: one logit for two of them
        if self.of_indices or like in _OF_TWO:
            self.outputs_per_class = self.of_indices

    def __call__(self, output: Any, labels: Tensor) -> Tensor:
        logits = logits_in(output).float()
        if self.of_indices and labels.dim() == 1 and labels.is_floating_point():
            raise ValueError(
                "the labels are floats; for classes give whole numbers (labels.astype('int64')), for numbers to reach "
                "loss='mse'"
            )
        if not self.of_indices:
            if logits.numel() != labels.numel() or len(logits) != len(labels):
                raise ValueError(
                    f"the model's output is {list(logits.shape)} and the labels are {list(labels.shape)}; this loss "
                    "compares them number by number: let both be of one shape"
                )
            logits, labels = logits.reshape(labels.shape), labels.to(logits.dtype)
        if isinstance(self.loss, nn.Module):
            self.loss.to(logits.device)  # weights of classes
        losses = self.loss(logits, labels)
        return losses.flatten(1).mean(1) if losses.dim() > 1 else losses


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
    name = type(loss).__name__
    if any(each.requires_grad for each in loss.parameters()):
        raise JobError(f"loss={name}() has parameters to train; make them part of the model")
    if not hasattr(loss, "reduction"):
        return loss
    alone: Any = copy.deepcopy(loss)
    alone.reduction = "none"
    return PerSample(alone, _OF_MODULES.get(type(loss), type(loss)))


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
