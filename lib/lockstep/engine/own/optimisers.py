"""A reader's own optimizer: what makes it, whether it works element by element, and its learning rate."""

from __future__ import annotations

import functools
import inspect
import math
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.engine.job import JobError

Make = Callable[[Iterable[Tensor]], Optimizer]
_FIX = "give a function of the parameters: functools.partial(torch.optim.SGD, lr=0.01)"
_PLAIN = (bool, int, float, str, tuple, type(None))
_GRADIENTS = ((0.1, 2.0), (1.0, -3.0), (-1e4, 3e4))  # first and last number; the large ones show a gradient that is cut
_SHAPE, _CUT = (3, 2), 4  # of the parameter that an optimizer is tried with, and where it is cut


def read_optimiser(optimiser: Any, model: nn.Module | None, lr: float | None) -> Make:
    """What makes the optimizer of any tensors. `optimiser`: such a function, a class, or an optimizer over the
    parameters of `model` (None: it is made by a function), whose class and settings are taken.

    Raises JobError for one that Lockstep can't make anew, and for one that does not work element by element.
    """
    make: Any = _of_instance(optimiser, model) if isinstance(optimiser, Optimizer) else optimiser
    if not callable(make):
        raise JobError(f"optimiser={optimiser!r} can't be called; {_FIX}")
    if lr is not None:
        if isinstance(lr, bool) or not isinstance(lr, int | float | np.number) or not 0 <= lr < math.inf:
            raise JobError(f"lr={lr!r} is not possible; give a finite number of at least 0")
        make = functools.partial(make, lr=float(lr))
    check_elementwise(make, lr)
    found: Make = make
    return found


def _of_instance(optimiser: Optimizer, model: nn.Module | None) -> Make:
    name = type(optimiser).__name__
    if model is None:
        raise JobError(
            f"optimiser={name}(...) is over the parameters of another model than the one that the function makes; give "
            "the model itself in place of the function, or for the optimizer a function of the parameters: "
            f"functools.partial(torch.optim.{name}, ...)"
        )
    groups = optimiser.param_groups
    if len(groups) != 1:
        raise JobError(
            f"optimiser={name}(...) has {len(groups)} groups of parameters, and Lockstep steps on slices of all of "
            f"them together; {_FIX}"
        )
    trained = {id(each) for each in model.parameters() if each.requires_grad}
    if {id(each) for each in groups[0]["params"] if each.requires_grad} != trained:
        raise JobError(f"optimiser={name}(...) is not over all parameters of this model, and no others; {_FIX}")
    if "initial_lr" in groups[0]:
        raise JobError(
            f"optimiser={name}(...) has a learning rate scheduler, which Lockstep's workers would not follow; give an "
            "optimizer without, and learning_rate_decay='cosine' or rate_warmup_epochs"
        )
    if any(float(each.get("step", 1)) > 0 for each in optimiser.state.values()):
        warnings.warn(f"optimiser={name}(...) has made steps: its settings are taken, its state is not", stacklevel=4)
    hooks = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
    if any(getattr(optimiser, each, None) for each in hooks):
        raise JobError(f"optimiser={name}(...) has hooks, which those of workers would lack; override step() instead")
    known = _settings_of(type(optimiser))
    make = functools.partial(type(optimiser), **{key: each for key, each in groups[0].items() if key in known})
    _check_same(optimiser, make)
    return make


def _settings_of(kind: type) -> set[str]:
    """The names that making an optimizer of this class takes, those that it hands on as **kwargs too."""
    known: set[str] = set()
    for each in kind.__mro__:
        if "__init__" in vars(each):
            parameters = inspect.signature(each.__init__).parameters  # type: ignore[misc]
            known |= set(parameters) - {"self", "params"}
            if not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
                break
    return known


def _check_same(given: Optimizer, make: Make) -> None:
    """Raises JobError unless `make` makes an optimizer with the settings of the `given` one, in its group of parameters
    or as plain attributes."""
    name, anew = type(given).__name__, _made(make, [nn.Parameter(torch.zeros(1))], None)
    there, here = (
        {key: each for key, each in one.param_groups[0].items() if key != "params"}
        | {key: each for key, each in vars(one).items() if key[0] != "_" and isinstance(each, _PLAIN)}
        for one in (given, anew)
    )
    lost = [key for key in there if repr(there[key]) != repr(here.get(key))]
    if lost:
        raise JobError(
            f"optimiser={name}(...) has {lost[0]}={there[lost[0]]!r}, and one made anew from its settings has "
            f"{here.get(lost[0])!r}; {_FIX}"
        )


def check_elementwise(make: Make, lr: float | None = None) -> None:
    """Raises JobError unless what `make` makes steps on a slice of a parameter as on the whole: a sync may give it
    slices. Found by a few steps on a few numbers, and so true of any class."""
    start = torch.linspace(-1.0, 1.0, 6, dtype=torch.float64)  # so exact that the smallest learning rate shows
    whole = nn.Parameter(start.clone().view(_SHAPE))
    parts = [nn.Parameter(part.clone()) for part in start.split([_CUT, len(start) - _CUT])]
    with torch.random.fork_rng(devices=[]):
        try:
            # Each part by an optimizer of its own, as workers with a slice each have: a sum over all would show, too.
            made = [_made(make, [each], lr) for each in (whole, *parts)]
            alike = all(_steps_alike(made, whole, parts, torch.linspace(*ends, 6).double()) for ends in _GRADIENTS)
        except JobError:
            raise
        except Exception as error:
            raise JobError(
                f"the optimizer fails in a first step on a few numbers with {type(error).__name__}: {error}; it must "
                "work element by element, with one step per gradient, as SGD and Adam do"
            ) from error
    if not alike:
        raise JobError(
            f"{type(made[0]).__name__} steps on a part of a parameter otherwise than on the whole; give one that works "
            "element by element, as SGD and Adam do"
        )


def _steps_alike(made: list[Optimizer], whole: nn.Parameter, parts: list[nn.Parameter], gradient: Tensor) -> bool:
    """Does a step with this gradient move the parts as it moves the whole?"""
    before = whole.detach().clone().flatten()
    whole.grad = gradient.clone().view(_SHAPE)
    for part, piece in zip(parts, gradient.split([_CUT, len(gradient) - _CUT]), strict=True):
        part.grad = piece.clone()
    for each in made:
        each.step()
    moved = torch.cat([part.detach() for part in parts]) - before
    return torch.allclose(whole.detach().flatten() - before, moved, rtol=1e-5, atol=1e-12)


def _made(make: Make, tensors: list[nn.Parameter], lr: float | None) -> Optimizer:
    try:
        found = make(tensors)
    except TypeError as error:
        given = f"lr={lr!r} with an optimizer that takes none" if lr is not None else "the optimizer can't be made"
        raise JobError(f"{given}: {type(error).__name__}: {error}; {_FIX}") from error
    if not isinstance(found, Optimizer):
        raise JobError(f"optimiser(parameters) gives a {type(found).__name__}; {_FIX}")
    return found
