"""What a layer costs: seconds by a clock of our own, bytes against what a stage really holds."""

from __future__ import annotations

import statistics
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

import tiny
from lockstep.engine.pipelines.partition import LayerCost, Memory, balanced
from lockstep.engine.replica.dropout import SampleKeys, key_dropout
from lockstep.engine.replica.pipeline import profile as module
from lockstep.engine.replica.pipeline.cut import flatten, stage_module, uncuttable
from lockstep.engine.replica.pipeline.profile import profile, static_costs

FLOAT = 4


class Clock:
    """Time goes by only where a layer says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self, like: Tensor) -> float:
        return self.now


class Slow(nn.Module):
    """Takes `forward_seconds`, then `backward_seconds`, by `clock`; one by one from lists."""

    def __init__(self, clock: Clock, forward_seconds: list[float], backward_seconds: list[float]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.clock, self.times = clock, (iter(forward_seconds), iter(backward_seconds))

    def forward(self, x: Tensor) -> Tensor:
        self.clock.now += next(self.times[0])
        output: Tensor = _Slowly.apply(x * self.weight, self)
        return output


class _Slowly(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: Slow) -> Tensor:
        ctx.layer = layer
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        ctx.layer.clock.now += next(ctx.layer.times[1])
        return gradient, None


def images(samples: int = 2, size: int = 6) -> Tensor:
    return torch.randn(samples, 3, size, size, generator=torch.Generator().manual_seed(1))


def network() -> nn.Sequential:
    torch.manual_seed(3)
    model = nn.Sequential(
        *(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Dropout(0.3), nn.Linear(16, 5), nn.Sigmoid(), nn.Linear(5, 3)),
    )
    keys = SampleKeys(0)
    keys.sample_ids = torch.arange(2).numpy()
    return key_dropout(model, keys)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("typical", "forward", "backward"), [(statistics.median, [2.0, 6.0], [4.0, 8.5]), (min, [1.0, 5.0], [3.0, 8.0])]
)
def test_seconds_are_typical_of_each_layer_without_the_warm_up(
    monkeypatch: pytest.MonkeyPatch, typical: Any, forward: list[float], backward: list[float]
) -> None:
    """One forward pass more than is timed: the one that looks at memory."""
    clock = Clock()
    monkeypatch.setattr(module, "_now", clock)
    there, back = (
        ([50.0, 90.0, 1.0, 9.0, 2.0], [80.0, 3.0, 30.0, 4.0]),
        ([50.0, 70.0, 5.0, 6.0, 7.0], [60.0, 8.0, 8.5, 10.0]),
    )
    layers = [Slow(clock, *there), Slow(clock, *back)]
    costs = profile(layers, images(), repeats=3, warmup=1, typical=typical)
    assert [cost.forward_seconds for cost in costs] == forward
    assert [cost.backward_seconds for cost in costs] == backward
    assert [cost.seconds for cost in costs] == [there + back for there, back in zip(forward, backward, strict=True)]
    assert [cost.parameters for cost in costs] == [1, 1]


def test_the_loss_belongs_to_the_last_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(module, "_now", clock)

    def loss(output: Tensor, labels: Tensor) -> Tensor:
        clock.now += 0.5
        assert output.shape == (2, 3, 6, 6) and labels.shape == (2,) and labels.dtype == torch.int64
        return output.flatten(1).sum(1)

    layers = [Slow(clock, [0.0] * 9, [0.0] * 9), Slow(clock, [1.0] * 9, [2.0] * 9)]
    costs = profile(layers, images(), loss, repeats=2)
    assert [(cost.forward_seconds, cost.backward_seconds) for cost in costs] == [(0.0, 0.0), (1.5, 2.0)]


@pytest.mark.parametrize("accumulated", [True, False])
def test_gradients_add_up_from_one_micro_batch_to_the_next(accumulated: bool) -> None:
    found: list[float] = []

    class Watching(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            found.append(0.0 if self.weight.grad is None else float(self.weight.grad.abs().sum()))
            return super().forward(x)

    layers = [nn.Flatten(), Watching(108, 2)]
    profile(layers, images(), lambda output, labels: output[:, 0], repeats=3, accumulated=accumulated)
    assert found[:2] == [0.0, 0.0], "a look at memory, then a first micro-batch"
    assert found[2:] == ([pytest.approx(number * found[2]) for number in (1, 2, 3)] if accumulated else [0.0] * 3)
    assert not accumulated or found[2] > 0


def test_outputs_and_what_is_saved_by_hand() -> None:
    """Two images of 6 x 6 -> conv 4 x 4 of 4 channels -> ReLU -> 2 x 2 -> 16 -> 5."""
    layers = [nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 5)]
    costs = profile(layers, images(), repeats=1)
    wide, narrow = 2 * 4 * 4 * 4 * FLOAT, 2 * 16 * FLOAT
    assert [cost.output_bytes for cost in costs] == [wide, wide, narrow, narrow, 2 * 5 * FLOAT]
    # The convolution's output is saved once, by the ReLU that writes over it and by the pooling; the pooling also saves
    # which pixels it took (8 bytes each), and its output is what the linear layer saves. The images are not counted.
    assert [cost.saved_bytes for cost in costs] == [wide, 0, narrow + 2 * narrow, 0, 0]
    assert [cost.output_saved for cost in costs] == [True, True, True, True, False]
    assert [cost.in_place for cost in costs] == [False, True, False, False, False]
    assert [cost.parameters for cost in costs] == [4 * 27 + 4, 0, 0, 0, 16 * 5 + 5]
    assert [cost.name for cost in costs] == ["Conv2d", "ReLU", "MaxPool2d", "Flatten", "Linear"]
    assert [cost.cuttable for cost in costs] == [True, True, True, False, True]


def held(stage: nn.Sequential, received: Tensor) -> int:
    """Bytes of distinct memory behind one micro-batch: a stage's input, its output, and what autograd saves."""
    own = {each.untyped_storage().data_ptr() for each in (*stage.parameters(), *stage.buffers())}
    found: dict[int, Tensor] = {}

    def note(tensor: Tensor) -> Tensor:
        found[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        output = stage(received)
    note(received)
    note(output)
    return sum(each.untyped_storage().nbytes() for address, each in found.items() if address not in own)


@pytest.mark.parametrize("first", [1, 2, 3, 4, 6, 7, 8])
def test_the_bytes_of_a_stage_are_those_that_it_holds(first: int) -> None:
    layers = flatten(network())
    costs = profile(layers, images(), repeats=1)
    memory = Memory(0, 0, [1, 1], input_bytes=images().nbytes)
    head, tail = stage_module(layers, 0, first - 1), stage_module(layers, first, len(layers) - 1)
    sent = head(images())
    assert memory.needed(costs, 0, 0, first) == held(head, images())
    assert memory.needed(costs, 1, first, len(layers)) == held(tail, sent.detach().requires_grad_())


def test_all_is_as_it_was_before() -> None:
    model = network()
    layers, before = flatten(model), {name: each.clone() for name, each in model.state_dict().items()}
    layers[0].weight.grad = kept = torch.ones(4, 3, 3, 3)  # type: ignore[union-attr, assignment]
    given, state = images(), torch.get_rng_state()
    profile([*layers, nn.Dropout(0.5)], given, repeats=2)
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items()), "running statistics too"
    assert layers[0].weight.grad is kept and torch.equal(kept, torch.ones(4, 3, 3, 3))
    assert all(each.grad is None for each in layers[6].parameters())
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(given, images())


def test_a_model_that_begins_in_place_leaves_the_images_alone() -> None:
    given = images()
    costs = profile([nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(108, 3)], given, repeats=1)
    assert torch.equal(given, images()) and costs[0].in_place


def test_a_layer_with_several_outputs_is_profiled_but_not_cut_off() -> None:
    class Split(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x * 2, x + 1

    class Join(nn.Module):
        def forward(self, x: tuple[Tensor, Tensor]) -> Tensor:
            return x[0] + x[1]

    layers = [nn.Linear(6, 6), Split(), Join(), nn.Linear(6, 6)]
    costs = profile(layers, images(), repeats=1)
    assert 1 not in uncuttable(layers), "nothing tells it from outside"
    assert [cost.cuttable for cost in costs] == [True, False, True, True]
    assert costs[1].output_bytes == 2 * costs[0].output_bytes
    assert balanced(costs, 2) in ([0, 1], [0, 3])


def test_bfloat16_halves_what_is_sent() -> None:
    layers = [nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3)]
    full, half = (profile(layers, images(), repeats=1, precision=each) for each in ("float32", "bfloat16"))
    assert [cost.output_bytes for cost in half] == [cost.output_bytes / 2 for cost in full]


def test_what_is_known_without_running() -> None:
    layers = flatten(tiny.deep_net())
    layers[0].weight.requires_grad_(False)  # type: ignore[union-attr, operator]
    known = static_costs(layers)
    assert [cost.parameters for cost in known[:3]] == [5, 0, 84]
    assert known[4] == LayerCost("Flatten", cuttable=False)


def test_no_repetition_measures_nothing() -> None:
    with pytest.raises(ValueError, match="repeats=0"):
        profile([nn.Linear(2, 2)], torch.ones(1, 2), repeats=0)
