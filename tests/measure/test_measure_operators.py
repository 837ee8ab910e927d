"""FLOP and bytes are counted as an analysis by hand gives them; a profile shares a pass out over kinds of operators."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import tiny
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job
from lockstep.engine.models.alexnet import alexnet
from lockstep.engine.models.layers import Network
from lockstep.engine.models.vgg import vgg16
from lockstep.engine.training.loop import Site
from lockstep.engine.usecases import UseCase
from lockstep.measure.probes.operators import (
    KINDS,
    OTHER,
    count,
    flops_per_image,
    operator_kind,
    run_profile,
    tensorflow_operator_kind,
)
from small_images import needs_tensorflow, small_case

BATCH = 3


def one_layer() -> nn.Module:
    """8 x 8 images, 2 channels -> 6 x 6, 5 channels -> 3 classes."""
    return nn.Sequential(nn.Conv2d(2, 5, 3, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(180, 3, bias=False))


def test_flops_of_forward_and_backward_by_hand() -> None:
    found = count(one_layer, (2, 8, 8), BATCH)
    forward = 2 * BATCH * (5 * 6 * 6) * (2 * 3 * 3)
    # The images need no gradient, so the convolution's backward pass computes the weights' only.
    assert found.flops["convolution"] == 2 * forward
    product = 2 * BATCH * 180 * 3
    assert found.flops["matrix product"] == 3 * product
    assert found.total_flops == 2 * forward + 3 * product


def test_bytes_are_operands_and_results() -> None:
    found = count(one_layer, (2, 8, 8), BATCH)
    activation = 4 * BATCH * 180
    # Forward: one read, one written. Backward: the result and its gradient read, the new gradient written.
    assert found.moved["ReLU"] == 5 * activation
    assert found.moved["matrix product"] > 0 and found.moved["pooling"] == 0


def test_bfloat16_moves_half_the_bytes_for_the_same_flops() -> None:
    """Autocast does nothing on the device that is counted on: it once gave float32's bytes."""
    full, half = count(alexnet3, (3, 224, 224), 2), count(alexnet3, (3, 224, 224), 2, "bfloat16")
    assert full.flops == half.flops
    for kind in ("ReLU", "pooling"):
        # A pooling's indices stay 64-bit numbers.
        assert half.moved[kind] == pytest.approx(full.moved[kind] / 2, rel=0.01 if kind == "ReLU" else 0.5), kind
    for kind in ("convolution", "matrix product"):
        assert half.moved[kind] == pytest.approx(full.moved[kind] / 2, rel=0.01), kind


def alexnet3() -> nn.Module:
    return alexnet(3)


def test_a_batch_that_ends_an_epoch_is_counted_as_it_is() -> None:
    """37 samples in batches of 35: the profiled batch has 2, and once was counted as 35."""
    job = Job(use_case="own", experiment="profile", global_batch_size=35, warmup_steps=1, strategy="own")
    trace = run_profile(job, ThreadGroup.of(1)[0], Site(use_case=tiny.case()))
    counted = count(tiny.net, (3, 7, 6), 2)
    assert trace.tables["operators"][0]["flops"] == counted.flops["convolution"]


def test_views_move_nothing() -> None:
    def views() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Unflatten(1, (4, 4)), nn.Flatten(), nn.Linear(16, 2))

    plain = count(lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 2)), (1, 4, 4), BATCH)
    assert count(views, (1, 4, 4), BATCH).moved == plain.moved


@pytest.mark.parametrize(("model", "multiplications"), [(alexnet, 0.71e9), (vgg16, 15.47e9)])
def test_the_papers_networks_have_their_known_size(model: object, multiplications: float) -> None:
    """Multiplications of a forward pass as published for 1,000 classes: 0.71 and 15.5 billion (torchvision)."""

    class Twenty(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = model(1000)  # type: ignore[operator]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x)

    with torch.device("meta"), torch.no_grad():
        first = next(p for p in model(1000).parameters())  # type: ignore[operator]
    side = 55 if model is alexnet else 224
    no_image_gradient = 2 * side * side * first.numel()
    # Backward is twice forward, but for the gradient of the images, which nobody asks for.
    whole = flops_per_image(UseCase("own", Twenty), (3, 224, 224))
    assert (whole + no_image_gradient) / 6 == pytest.approx(multiplications, rel=0.01)


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        ("aten::mkldnn_convolution", "convolution"),
        ("aten::convolution_backward", "convolution"),
        ("aten::addmm", "matrix product"),
        ("aten::mm", "matrix product"),
        ("aten::max_pool2d_with_indices_backward", "pooling"),
        ("aten::threshold_backward", "ReLU"),
        ("aten::clamp_min_", "ReLU"),
        ("aten::relu_", "ReLU"),
        ("aten::copy_", "copies and casts"),
        ("aten::_to_copy", "copies and casts"),
        ("aten::_adaptive_avg_pool2d_backward", "pooling"),
        ("mkldnn::_linear_pointwise", "matrix product"),
        ("aten::mul", OTHER),
    ],
)
def test_kinds(operator: str, kind: str) -> None:
    assert operator_kind(operator) == kind


def test_a_profiled_pass_is_shared_out() -> None:
    job = Job(use_case="own", experiment="profile", global_batch_size=8, warmup_steps=1, strategy="own")
    case = tiny.case()
    trace = run_profile(job, ThreadGroup.of(1)[0], Site(use_case=case))
    table = {row["operators"]: row for row in trace.tables["operators"]}
    assert list(table) == [*(name for name, _ in KINDS), OTHER]
    assert sum(float(row["share"]) for row in table.values()) == pytest.approx(1)
    for kind in ("convolution", "matrix product", "ReLU"):
        assert float(table[kind]["seconds"]) > 0 and float(table[kind]["calls"]) > 0, kind
    counted = count(tiny.net, (3, 7, 6), 8)
    assert table["convolution"]["flops"] == counted.flops["convolution"] > 0
    convolutions = float(table["convolution"]["flops"]) / float(table["convolution"]["seconds"])
    assert trace.scores["flops_per_second"] == pytest.approx(convolutions)
    assert trace.scores["flops_per_image"] == flops_per_image(case, (3, 7, 6))
    assert trace.steps == [], "a profiled step is no measurement of speed"


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        ("_MklNativeFusedConv2D", "convolution"),
        ("_MklNativeConv2DBackpropFilterWithBias", "convolution"),
        ("_MklMatMul", "matrix product"),
        ("_MklNativeMaxPoolGrad", "pooling"),
        ("ReluGrad", "ReLU"),
        ("_MklTranspose", "copies and casts"),
        ("ConcatV2", "copies and casts"),
        ("Sigmoid", OTHER),
    ],
)
def test_kinds_of_tensorflow(operator: str, kind: str) -> None:
    assert tensorflow_operator_kind(operator) == kind


@needs_tensorflow
def test_a_pass_of_tensorflow_is_shared_out_too() -> None:
    """Its single-threaded executor, in which steps run, names no operators: the table was empty."""
    network = Network("convlstm", channels=1)
    job = Job(
        use_case="own",
        experiment="profile",
        global_batch_size=8,
        warmup_steps=1,
        strategy="own",
        framework="tensorflow",
    )
    trace = run_profile(job, ThreadGroup.of(1)[0], Site(use_case=small_case(network)))
    table = {row["operators"]: row for row in trace.tables["operators"]}
    assert list(table) == [*(name for name, _ in KINDS), OTHER]
    assert sum(float(row["share"]) for row in table.values()) == pytest.approx(1)
    for kind in ("convolution", "matrix product", "pooling", "ReLU"):
        assert float(table[kind]["seconds"]) > 0 and float(table[kind]["calls"]) > 0, kind
    # Three layers forward and backward to their weights, two of them backward to their input.
    assert table["convolution"]["calls"] == 8
    assert table["convolution"]["flops"] == count(small_case(network).model, (1, 50, 50), 8).flops["convolution"] > 0
    assert math.isnan(float(table["convolution"]["bytes"])), "what fused operators move is not counted"
