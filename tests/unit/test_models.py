"""The networks: sizes as published, shapes, and a start that depends on torch's seed alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lockstep.models import MODELS, alexnet, vgg16

COUNTS = [
    ("alexnet", 1000, 61_100_840),
    ("alexnet", 3, 57_016_131),
    ("vgg16", 1000, 138_357_544),
    ("vgg16", 3, 134_272_835),
]


def on_meta(name: str, classes: int) -> nn.Sequential:
    """The architecture without memory or initialisation."""
    with torch.device("meta"):
        return MODELS[name](classes)


@pytest.mark.parametrize(("name", "classes", "expected"), COUNTS)
def test_number_of_parameters_is_the_published_one(name: str, classes: int, expected: int) -> None:
    assert sum(parameter.numel() for parameter in on_meta(name, classes).parameters()) == expected


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("classes", [2, 7])
def test_logits_have_one_column_per_class(name: str, classes: int) -> None:
    assert on_meta(name, classes)(torch.empty(5, 3, 224, 224, device="meta")).shape == (5, classes)


@pytest.mark.parametrize(("name", "convolutions", "dropouts"), [("alexnet", 5, 2), ("vgg16", 13, 2)])
def test_layers_are_flat_and_complete(name: str, convolutions: int, dropouts: int) -> None:
    layers = list(on_meta(name, 3))
    assert not any(list(layer.children()) for layer in layers), "a nested module could not be cut into stages"
    assert sum(isinstance(layer, nn.Conv2d) for layer in layers) == convolutions
    assert sum(isinstance(layer, nn.Dropout) and layer.p == 0.5 for layer in layers) == dropouts
    assert all(layer.inplace for layer in layers if isinstance(layer, nn.ReLU))


def test_the_published_order_of_dropout_in_the_classifiers() -> None:
    def classifier(name: str) -> list[str]:
        names = [type(layer).__name__ for layer in on_meta(name, 3)]
        return names[names.index("Flatten") + 1 :]

    assert classifier("alexnet") == ["Dropout", "Linear", "ReLU", "Dropout", "Linear", "ReLU", "Linear"]
    assert classifier("vgg16") == ["Linear", "ReLU", "Dropout", "Linear", "ReLU", "Dropout", "Linear"]


def test_the_same_seed_gives_the_same_start_and_another_seed_another() -> None:
    def start(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return nn.utils.parameters_to_vector(alexnet(2).parameters()).detach()

    first = start(1)
    assert torch.equal(first, start(1))
    assert not torch.equal(first, start(2))


def test_vgg16_starts_with_a_signal_that_reaches_the_end() -> None:
    torch.manual_seed(0)
    model = vgg16(3)
    torch.manual_seed(0)
    again = vgg16(3)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    with torch.inference_mode():
        features = model[:31](torch.randn(1, 3, 224, 224))
    # Torch's own initialisation gives 0.02 here.
    assert features.std() > 0.2
    assert not any(layer.bias.any() for layer in model if isinstance(layer, nn.Conv2d | nn.Linear))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("classes", [1, 0, -3, 2.0, True, "3"])
def test_fewer_than_two_classes_are_refused(name: str, classes: object) -> None:
    with pytest.raises(ValueError, match=rf"{name}\(classes={classes!r}\).*at least 2"):
        MODELS[name](classes)  # type: ignore[arg-type]
