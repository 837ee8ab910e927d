"""Losses and optimizers by name, for models that are measured on random data.

They are those of `lockstep.train`, by the same rules. Labels are random whole numbers, out of which the target that a
loss needs is made: of the same cost as a real one, for outputs of any shape.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.advisor.calibration import CalibrationError
from lockstep.advisor.measuring.references import referred
from lockstep.engine.job import JobError
from lockstep.engine.models.losses import Loss, logits_in
from lockstep.engine.own.losses import LOSSES, PerSample, read_loss
from lockstep.engine.own.optimisers import read_optimiser
from lockstep.engine.sync.plan import OptimiserFactory
from lockstep.engine.usecases import PAPER_SGD

_ELEMENTWISE = ("SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adagrad", "Adadelta", "RMSprop", "Rprop", "ASGD")
OPTIMISERS = {name.lower(): getattr(torch.optim, name) for name in _ELEMENTWISE}
"""Those of torch's that work element by element, as every sync needs them."""
_TRIED_PARAMETERS = 1024


def loss_named(name: str) -> Loss:
    """The loss of that name, or `module:function`, as `lockstep.train` takes it, on targets made out of class numbers.
    Raises CalibrationError."""
    _kept_loss(name)  # may refuse
    return functools.partial(_found_loss, name)


def _found_loss(name: str, output: Any, labels: Tensor) -> Tensor:
    """Looked up where it runs, so that it need not be picklable."""
    loss = _kept_loss(name)
    if not isinstance(loss, PerSample):  # of the reader's own: it gets what the model returns, and the labels
        return loss(output, labels)
    scores = logits_in(output).float()
    if loss.of_places and scores.dim() == 3:  # [samples, places, classes]
        scores = scores.transpose(1, 2)
    return loss(scores, _target(loss, scores, labels))


def _target(loss: PerSample, scores: Tensor, labels: Tensor) -> Tensor:
    """What this loss compares the scores with: classes of samples or of their places, yes or no, or numbers."""
    if loss.of_places:
        return labels.reshape(-1, *[1] * (scores.dim() - 2)).expand(len(labels), *scores.shape[2:])
    if loss.of_indices:
        if loss.of_several:  # one of them, and no more
            return torch.cat([labels[:, None], torch.full_like(scores[:, 1:], -1, dtype=labels.dtype)], dim=1)
        return labels
    numbers = labels % 2 if loss.scored == "labels" else labels
    return numbers.to(scores.dtype).reshape(-1, *[1] * (scores.dim() - 1)).expand_as(scores)


@functools.cache
def _kept_loss(name: str) -> Loss:
    try:
        if ":" not in name:
            return read_loss(name)
        found = referred(name, "--loss")
        if inspect.isclass(found):  # such as torch.nn:MSELoss
            found = _object_of(found, name)
        return read_loss(found)
    except JobError as error:
        if ":" in name:
            raise CalibrationError(f"--loss {name!r}: {error}") from error
        raise CalibrationError(
            f"--loss {name!r} does not exist; there are: {', '.join(LOSSES)}, or module:function of your own, which "
            "gives one value per sample"
        ) from None


def _object_of(kind: type, name: str) -> Any:
    try:
        return kind()
    except Exception as error:
        raise CalibrationError(
            f"--loss {name!r} is a class, and making an object of it fails with {type(error).__name__}: {error}; name "
            "an object or a function of (output, labels)"
        ) from error


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
    """How many classes cross-entropy tells apart in this output; at least 2."""
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
    """`adam`, `sgd:lr=0.1,momentum=0.9` or `module:factory` as a factory; empty: the library's usual SGD. Those of
    torch are fused where they can be.

    Raises CalibrationError for a name or a setting that does not exist or that torch refuses, and for an optimizer that
    `lockstep.train` refuses: above all one that does not work element by element.
    """
    if not text.strip():
        return PAPER_SGD
    name, _, rest = text.partition(":")
    if name.strip().lower() not in OPTIMISERS and rest.strip() and "=" not in rest:
        _kept_optimiser(text)  # may refuse
        found: OptimiserFactory = functools.partial(_made_by, text)
        return found
    factory = _torchs_own(text, name, rest)
    _try(factory, text)
    return factory


def _made_by(text: str, parameters: Any) -> Optimizer:
    """Looked up where it runs, so that it need not be picklable."""
    return _kept_optimiser(text)(parameters)


@functools.cache
def _kept_optimiser(text: str) -> OptimiserFactory:
    try:
        make = read_optimiser(referred(text, "--optimiser"), None, None)
    except JobError as error:
        raise CalibrationError(f"--optimiser {text!r}: {error}") from error
    _try(make, text)
    return make


def _torchs_own(text: str, name: str, rest: str) -> OptimiserFactory:
    """One of OPTIMISERS with the settings of `rest`."""
    kind = OPTIMISERS.get(name.strip().lower())
    if kind is None:
        raise CalibrationError(
            f"--optimiser {text!r}: {name!r} does not exist, or does not work element by element; there are: "
            f"{', '.join(OPTIMISERS)}, or module:factory of your own, which makes one of parameters"
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
