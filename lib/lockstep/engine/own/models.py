"""A reader's own model: a function that makes it, or the model itself with the weights that it has."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import cloudpickle
import torch
from torch import nn

from lockstep.engine.job import JobError

Factory = Callable[[], nn.Module]


class Present:
    """Copies of a model with the weights that it has now; the model itself stays as it is."""

    def __init__(self, model: nn.Module) -> None:
        """Raises JobError for a model that can't be copied."""
        check_hooks(model)
        try:
            self.model = copy.deepcopy(model).cpu()
        except Exception as error:
            raise JobError(
                f"model, a {type(model).__name__}, can't be copied ({type(error).__name__}: {error}); give a function "
                "that makes it"
            ) from error
        self.model.zero_grad(set_to_none=True)

    def __call__(self) -> nn.Module:
        return copy.deepcopy(self.model)


def check_hooks(model: nn.Module) -> None:
    """Raises JobError for hooks of parameters, which a copy of the model would not have."""
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise JobError(
                f"parameter {name!r} has a hook, which copies of the model lack; give a function that makes the model "
                "and registers it (to freeze a parameter: requires_grad_(False))"
            )


def read_model(model: Any) -> Factory:
    """What makes `model`, a module, a class of modules or a function without arguments. Raises JobError."""
    if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
        raise JobError(f"model is wrapped in {type(model).__name__}, and Lockstep distributes it; give model.module")
    if isinstance(model, nn.Module):
        return Present(model)
    if not callable(model):
        raise JobError(f"model={model!r} is no model; give an nn.Module, or a function without arguments that makes it")
    factory: Factory = model
    return factory


def made(factory: Factory, seed: int) -> nn.Module:
    """The model as workers begin with it, as far as torch's seed decides. Raises JobError."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            model = factory()
        except TypeError as error:
            raise JobError(
                f"model() fails with TypeError: {error}; if it needs arguments, give functools.partial(model, ...), or "
                "a model in its place"
            ) from error
    if not isinstance(model, nn.Module):
        raise JobError(f"model() gives a {type(model).__name__}; let it return an nn.Module")
    lazy = [name for name, each in model.named_parameters() if isinstance(each, nn.UninitializedParameter)]
    if lazy:
        raise JobError(
            f"parameter {lazy[0]!r} has no shape before a first batch, as of nn.LazyLinear; run model(batch) once, and "
            "give that model"
        )
    return model


def spare(model: nn.Module) -> nn.Module:
    """`model` to be changed at will: a copy of it if somebody else holds it, as a `lambda: model` does."""
    alone = 2  # this argument, and that of the counting
    if sys.getrefcount(model) <= alone:
        return model
    check_hooks(model)
    return copy.deepcopy(model)


class _Nowhere:
    written = 0

    def write(self, piece: Any) -> int:
        size = memoryview(piece).nbytes
        self.written += size
        return size


def check_travels(what: str, value: object) -> int:
    """The bytes as which `value` is sent to a worker process. Raises JobError if it can't be."""
    nowhere = _Nowhere()
    try:
        cloudpickle.dump(value, nowhere)
    except Exception as error:
        raise JobError(
            f"{what} can't be sent to workers ({type(error).__name__}: {error}); open files, locks and connections in "
            "it must be made where they are used"
        ) from error
    return nowhere.written
