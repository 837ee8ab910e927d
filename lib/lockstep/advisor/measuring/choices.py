"""Losses and optimizers by name, for models that are measured on random data.

Labels are random whole numbers, and every loss makes the target that it needs out of them: of the same cost as a real
one, for outputs of any shape.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.advisor.calibration import CalibrationError
from lockstep.advisor.measuring.references import referred
from lockstep.engine.models.losses import Loss, logits_in
from lockstep.engine.sync.plan import OptimiserFactory
from lockstep.engine.usecases import PAPER_SGD

_ELEMENTWISE = ("SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adagrad", "Adadelta", "RMSprop", "Rprop", "ASGD")
OPTIMISERS = {name.lower(): getattr(torch.optim, name) for name in _ELEMENTWISE}
"""Those of torch's that work element by element, as every sync needs them."""
_TRIED_PARAMETERS = 1024


def class_losses(output: Any, labels: Tensor) -> Tensor:
    """Cross-entropy: output [samples, classes], [samples, places, classes] or [samples, classes, height, width]."""
    scores = logits_in(output).float()
    if scores.dim() == 3:
        scores = scores.transpose(1, 2)
    target = labels.reshape(-1, *[1] * (scores.dim() - 2)).expand(len(labels), *scores.shape[2:])
    return nn.functional.cross_entropy(scores, target, reduction="none").reshape(len(labels), -1).mean(1)


def logit_losses(output: Any, labels: Tensor) -> Tensor:
    """Binary cross-entropy of every logit, for one or several yes-or-no questions about a sample."""
    logits = logits_in(output).float().reshape(len(labels), -1)
    target = (labels % 2).float()[:, None].expand_as(logits)
    return nn.functional.binary_cross_entropy_with_logits(logits, target, reduction="none").mean(1)


def squared_losses(output: Any, labels: Tensor) -> Tensor:
    """Mean squared error, over all numbers of a sample's output."""
    numbers = logits_in(output).float().reshape(len(labels), -1)
    return (numbers - labels.float()[:, None]).square().mean(1)


def absolute_losses(output: Any, labels: Tensor) -> Tensor:
    """Mean absolute error, over all numbers of a sample's output."""
    numbers = logits_in(output).float().reshape(len(labels), -1)
    return (numbers - labels.float()[:, None]).abs().mean(1)


LOSSES: dict[str, Loss] = {
    "cross_entropy": class_losses,
    "binary_cross_entropy": logit_losses,
    "mse": squared_losses,
    "l1": absolute_losses,
}
"""The names that `--loss` knows."""


def loss_named(name: str) -> Loss:
    """The loss of that name, or `module:function`. Raises CalibrationError."""
    if ":" in name:
        return _named_loss(name)
    if name not in LOSSES:
        raise CalibrationError(
            f"--loss {name!r} does not exist; there are: {', '.join(LOSSES)}, or module:function of your own, which "
            "gives one value per sample"
        )
    return LOSSES[name]


def _named_loss(name: str) -> Loss:
    found = referred(name, "--loss")
    if not callable(found):
        raise CalibrationError(f"--loss {name!r} is a {type(found).__name__}; name a function of (output, labels)")
    return functools.partial(_found_loss, name)


def _found_loss(name: str, output: Any, labels: Tensor) -> Tensor:
    """Looked up where it runs, so that it need not be picklable."""
    return _kept_loss(name)(output, labels)


@functools.cache
def _kept_loss(name: str) -> Loss:
    found = referred(name, "--loss")
    if inspect.isclass(found):  # such as torch.nn:MSELoss
        found = cast("Callable[..., Loss]", found)(reduction="none")
    return cast("Loss", found)


def usual_loss(output: Any) -> str:
    """The name of the loss that fits what a model returned for 2 samples or more. Raises CalibrationError."""
    try:
        scores = logits_in(output)
    except TypeError:
        raise CalibrationError(
            f"the model returns {what_it_is(output)}, for which there is no loss; let it return one tensor, or a "
            "dictionary with `logits`, or name a loss that takes this: --loss module:function"
        ) from None
    if scores.dim() == 0 or not scores.is_floating_point():
        raise CalibrationError(
            f"the model returns {what_it_is(scores)}, for which there is no loss; let it return [samples, classes], "
            "[samples, places, classes] or [samples, classes, height, width], or name one: --loss module:function"
        )
    return "binary_cross_entropy" if scores[0].numel() == 1 else "cross_entropy" if 2 <= scores.dim() <= 5 else "mse"


def classes_of(output: Any) -> int:
    """How many classes `class_losses` tells apart in this output; at least 2."""
    try:
        scores = logits_in(output)
    except TypeError:  # for a loss of the reader's own
        return 2
    return max(2, int(scores.shape[-1] if scores.dim() == 3 else scores.shape[1])) if scores.dim() > 1 else 2


def what_it_is(value: Any) -> str:
    """A value that a model or a loss gave, in words."""
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)} of {str(value.dtype).removeprefix('torch.')}"
    return f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, tuple | list | dict) else "")


def optimiser_named(text: str) -> OptimiserFactory:
    """`adam` or `sgd:lr=0.1,momentum=0.9` as a factory; empty: the library's usual SGD. Fused where torch can.

    Raises CalibrationError for a name or a setting that does not exist or that torch refuses.
    """
    if not text.strip():
        return PAPER_SGD
    name, _, rest = text.partition(":")
    kind = OPTIMISERS.get(name.strip().lower())
    if kind is None:
        raise CalibrationError(
            f"--optimiser {text!r}: {name!r} does not exist, or does not work element by element; there are: "
            f"{', '.join(OPTIMISERS)}"
        )
    known = inspect.signature(kind).parameters
    settings: dict[str, Any] = {"fused": True} if "fused" in known else {}
    for item in rest.split(",") if rest.strip() else ():
        key, given, raw = (part.strip() for part in item.partition("="))
        if not given or key not in known or key == "params":
            there_are = ", ".join(each for each in known if each != "params")
            raise CalibrationError(f"--optimiser {text!r}: {item.strip()!r} is no setting; there are: {there_are}")
        settings[key] = _value(raw, text)
    if "lr" in known and known["lr"].default is inspect.Parameter.empty:
        settings.setdefault("lr", 0.001)
    if settings.get("foreach") or settings.get("capturable"):
        settings.pop("fused", None)
    factory: OptimiserFactory = functools.partial(kind, **settings)
    _try(factory, text)
    return factory


def _value(raw: str, text: str) -> float | int | bool:
    if raw.lower() in ("true", "false"):
        return raw.lower() == "true"
    try:
        return int(raw) if raw.lstrip("+-").isdigit() else float(raw)
    except ValueError:
        raise CalibrationError(f"--optimiser {text!r}: {raw!r} is neither a number nor true or false") from None


def _try(factory: OptimiserFactory, text: str) -> Optimizer:
    parameter = nn.Parameter(torch.zeros(_TRIED_PARAMETERS))
    parameter.grad = torch.zeros_like(parameter)
    try:
        optimiser = factory([parameter])
        optimiser.step()
    except Exception as error:
        raise CalibrationError(f"--optimiser {text!r}: {type(error).__name__}: {error}") from error
    return optimiser


def state_bytes_per_parameter(factory: OptimiserFactory) -> float:
    """Bytes that an optimizer keeps for each parameter: 4 for SGD with momentum, 8 for Adam."""
    states: Iterable[dict[str, Any]] = _try(factory, "").state.values()
    held = [each for state in states for each in state.values() if isinstance(each, Tensor)]
    return sum(each.numel() * each.element_size() for each in held if each.numel() > 1) / _TRIED_PARAMETERS
