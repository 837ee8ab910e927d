"""A reader's own optimiser: what makes it, whether it works element by element, and its learning rate."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.engine.job import JobError

Make = Callable[[Iterable[Tensor]], Optimizer]
_FIX = "give a function of the parameters: functools.partial(torch.optim.SGD, lr=0.01)"
_SHAPE, _CUT = (3, 2), 4  # of the parameter that an optimiser is tried with, and where it is cut


def read_optimiser(optimiser: Any, model: nn.Module | None, lr: float | None) -> Make:
    """What makes the optimiser of any tensors. `optimiser`: such a function, a class, or an optimiser over the
    parameters of `model` (None: it is made by a function), whose class and settings are taken.

    Raises JobError for one that Lockstep can't make anew, and for one that does not work element by element.
    """
    make: Any = _of_instance(optimiser, model) if isinstance(optimiser, Optimizer) else optimiser
    if not callable(make):
        raise JobError(f"optimiser={optimiser!r} can't be called; {_FIX}")
    if lr is not None:
        if isinstance(lr, bool) or not isinstance(lr, int | float) or not lr >= 0:
            raise JobError(f"lr={lr!r} is not possible; give a number of at least 0")
        make = functools.partial(make, lr=lr)
    check_elementwise(make, lr)
    found: Make = make
    return found


def _of_instance(optimiser: Optimizer, model: nn.Module | None) -> Make:
    name = type(optimiser).__name__
    if model is None:
        raise JobError(
            f"optimiser={name}(...) is over the parameters of another model than the one that the function makes; give "
            "the model itself in place of the function, or for the optimiser a function of the parameters: "
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
            "optimiser without, and learning_rate_decay='cosine' or rate_warmup_epochs"
        )
    if any(float(each.get("step", 1)) > 0 for each in optimiser.state.values()):
        warnings.warn(f"optimiser={name}(...) has made steps: its settings are taken, its state is not", stacklevel=4)
    known = set(inspect.signature(type(optimiser)).parameters) - {"params"}
    return functools.partial(type(optimiser), **{key: each for key, each in groups[0].items() if key in known})


def check_elementwise(make: Make, lr: float | None = None) -> None:
    """Raises JobError unless what `make` makes steps on a slice of a parameter as on the whole: a sync may give it
    slices. Found by two steps on a few numbers, and so true of any class."""
    start = torch.linspace(-1.0, 1.0, 6, dtype=torch.float64)  # so exact that the smallest learning rate shows
    whole = nn.Parameter(start.clone().view(_SHAPE))
    parts = [nn.Parameter(part.clone()) for part in start.split([_CUT, len(start) - _CUT])]
    with torch.random.fork_rng(devices=[]):
        try:
            # Each part by an optimiser of its own, as workers with a slice each have: a sum over all would show, too.
            one, *several = [_made(make, [each], lr) for each in (whole, *parts)]
            name = type(one).__name__
            for gradient in (torch.linspace(0.1, 2.0, 6).double(), torch.linspace(1.0, -3.0, 6).double()):
                whole.grad = gradient.clone().view(_SHAPE)
                for part, piece in zip(parts, gradient.split([_CUT, len(start) - _CUT]), strict=True):
                    part.grad = piece.clone()
                for each in (one, *several):
                    each.step()
        except JobError:
            raise
        except Exception as error:
            raise JobError(
                f"the optimiser fails in a first step on a few numbers with {type(error).__name__}: {error}; it must "
                "work element by element, with one step per gradient, as SGD and Adam do"
            ) from error
    moved = whole.detach().flatten() - start
    if not torch.allclose(moved, torch.cat([part.detach() for part in parts]) - start, rtol=1e-5, atol=1e-12):
        raise JobError(
            f"{name} steps on a part of a parameter otherwise than on the whole; give one that works element by "
            "element, as SGD and Adam do"
        )


def _made(make: Make, tensors: list[nn.Parameter], lr: float | None) -> Optimizer:
    try:
        found = make(tensors)
    except TypeError as error:
        given = f"lr={lr!r} with an optimiser that takes none" if lr is not None else "the optimiser can't be made"
        raise JobError(f"{given}: {type(error).__name__}: {error}; {_FIX}") from error
    if not isinstance(found, Optimizer):
        raise JobError(f"optimiser(parameters) gives a {type(found).__name__}; {_FIX}")
    return found
