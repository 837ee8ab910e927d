"""What workers need to make the reader's model anew: they import this and not what a calibration needs besides."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from lockstep.advisor.calibration import CalibrationError
from lockstep.advisor.measuring.references import referred
from lockstep.engine.data.drawn import ModelInput


@dataclass(frozen=True)
class OwnFactory:
    """Makes the model anew in every process; picklable, whatever the reader's factory is.

    A model that takes anything but one image gets what `DrawnSamples` gives, taken apart.
    """

    model: str
    arguments: str
    inputs: tuple[ModelInput, ...]

    def __call__(self) -> nn.Module:
        """Raises CalibrationError for what is no torch model that can be trained."""
        found = referred(self.model)
        if isinstance(found, nn.Module):
            found = copy.deepcopy(found)
        elif callable(found):
            found = found(**json.loads(self.arguments))
        model = torch_module(found, self.model)
        if len(self.inputs) == 1 and self.inputs[0].is_image:
            return model
        if len(self.inputs) > 1:
            return SeveralInputs(model, self.inputs)
        layers = model._modules if is_plain_row(model) else {"model": model}  # not children(): a layer may occur twice
        row = nn.Sequential()
        for name, layer in {"lockstep_input": OneInput(self.inputs[0]), **layers}.items():
            row.add_module(name, layer)  # names stay as the reader knows them
        return row


class OneInput(nn.Module):
    """Rows of numbers, float32 [samples, 1, 1, numbers], in the shape and the type that a model takes."""

    def __init__(self, given: ModelInput) -> None:
        super().__init__()
        self.given = given

    def forward(self, rows: Tensor) -> Tensor:
        shaped = rows.reshape(len(rows), *self.given.shape)
        return shaped.long() if self.given.dtype == "int64" else shaped


class SeveralInputs(nn.Module):
    """A model of several inputs, which stand one behind the other in a row of numbers."""

    def __init__(self, model: nn.Module, inputs: tuple[ModelInput, ...]) -> None:
        super().__init__()
        self.model = model
        self.takers = nn.ModuleList(OneInput(each) for each in inputs)
        self.numbers = [each.numbers for each in inputs]

    def forward(self, rows: Tensor) -> Any:
        parts = rows.split(self.numbers, dim=-1)
        return self.model(*(taker(part) for taker, part in zip(self.takers, parts, strict=True)))


def torch_module(found: Any, name: str) -> nn.Module:
    """Raises CalibrationError for anything but a torch model with sizes that are known."""
    if not isinstance(found, nn.Module):
        if type(found).__module__.partition(".")[0] in ("keras", "tensorflow", "tf_keras"):
            raise CalibrationError(
                f"--model {name!r} makes a Keras model on TensorFlow, and only Lockstep's own networks are trained "
                "there; start with KERAS_BACKEND=torch: then Keras models are torch modules, and their time on torch "
                "is measured"
            )
        raise CalibrationError(f"--model {name!r} makes a {type(found).__name__}; let it return an nn.Module")
    lazy = [path for path, parameter in found.named_parameters() if is_lazy(parameter)]
    if lazy:
        raise CalibrationError(
            f"--model {name!r}: the size of {lazy[0]} is not known before a first pass; let the factory make that pass"
        )
    return found


def is_plain_row(model: nn.Module) -> bool:
    """Whether it is an nn.Sequential with torch's own forward pass: others may run their layers in another order."""
    return isinstance(model, nn.Sequential) and type(model).forward is nn.Sequential.forward
