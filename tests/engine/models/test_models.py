"""The networks: sizes as published, shapes, and a start that depends on torch's seed alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lockstep.engine.models.alexnet import alexnet
from lockstep.engine.models.vgg import vgg16

MODELS = {"alexnet": alexnet, "vgg16": vgg16}

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


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_same_seed_gives_the_same_start_and_another_seed_another(name: str) -> None:
    def start(seed: int) -> nn.Sequential:
        torch.manual_seed(seed)
        return MODELS[name](2)

    first, again = start(1), start(1)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    del again
    other = start(2)
    pairs = zip(first.parameters(), other.parameters(), strict=True)
    assert not any(torch.equal(a, b) for a, b in pairs if a.ndim > 1)


@pytest.mark.slow
def test_vgg16_starts_with_a_signal_that_reaches_the_end() -> None:
    torch.manual_seed(0)
    model = vgg16(2)
    with torch.inference_mode():
        first, second = model[:31](torch.randn(2, 3, 224, 224))
    # Two different images still differ after 13 convolutions; with torch's own initialisation by 0.000003 only.
    assert (first - second).std() > 0.005
    for layer in model:
        if isinstance(layer, nn.Linear):
            assert abs(float(layer.weight.detach().std()) - 0.01) < 0.001
        if isinstance(layer, nn.Conv2d | nn.Linear):
            assert not layer.bias.any()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("classes", [1, 0, -3, 2.0, True, "3"])
def test_fewer_than_two_classes_are_refused(name: str, classes: object) -> None:
    with pytest.raises(ValueError, match=rf"{name}\(classes={classes!r}\).*at least 2"):
        MODELS[name](classes)  # type: ignore[arg-type]
