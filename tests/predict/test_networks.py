"""AlexNet and VGG16 in numbers, against torch and against what notebook 04 stored of their layers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lockstep.engine.models.alexnet import alexnet
from lockstep.engine.models.vgg import vgg16
from lockstep.predict.networks import network
from lockstep.records import read_traced_table

MODELS = {"SimpleBig": alexnet, "ComplexSmall": vgg16}


@pytest.mark.parametrize("use_case", MODELS)
def test_parameters_and_flop_are_those_that_torch_counts(use_case: str) -> None:
    with torch.device("meta"):
        model, image = MODELS[use_case](3).eval(), torch.zeros(1, 3, 224, 224)
        with FlopCounterMode(display=False) as forward:
            output = model(image)
        with FlopCounterMode(display=False) as backward:
            output.sum().backward()
    found = network(use_case)
    assert found.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert found.forward_flops == forward.get_total_flops()
    assert found.training_flops == forward.get_total_flops() + backward.get_total_flops()


@pytest.mark.parametrize("use_case", MODELS)
def test_what_is_kept_for_the_backward_pass_is_what_was_counted_layer_by_layer(use_case: str, root: Path) -> None:
    layers = read_traced_table(root / "results" / "reference" / "04_hybrid_parallelism", "layers")
    assert layers is not None
    own = layers[(layers["use_case"] == use_case) & (layers["round"] == layers["round"].min())]
    for size, rows in own.groupby("micro_batch_size"):
        image = 4 * 3 * 224 * 224
        assert rows["saved_bytes"].sum() / size == pytest.approx(network(use_case).activation_bytes - image)


@pytest.mark.parametrize("use_case", MODELS)
def test_two_halves_are_the_whole(use_case: str) -> None:
    found = network(use_case)
    first, second = found.halves
    assert first.parameters + second.parameters == found.parameters
    assert first.forward_flops + second.forward_flops == found.forward_flops
    assert 1 <= found.imbalance < 1.2 and found.sent_bytes == 4 * first.layers[-1].outputs
