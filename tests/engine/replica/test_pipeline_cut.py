"""A model as a row of layers, where it can't be cut and why, and stages that together are the model again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import tiny
from lockstep.engine.models.alexnet import alexnet
from lockstep.engine.models.vgg import vgg16
from lockstep.engine.replica.dropout import KeyedDropout, SampleKeys
from lockstep.engine.replica.pipeline.cut import CutError, check_cuts, flatten, stage_module, uncuttable


class TakesFirst(nn.Module):
    """The output of a recurrent layer, without its state."""

    def forward(self, x: tuple[Tensor, object]) -> Tensor:
        return x[0]


class Skipping(nn.Sequential):
    """A Sequential that isn't one."""

    def forward(self, input: Tensor) -> Tensor:
        output: Tensor = input + super().forward(input)
        return output


def recurrent() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.LSTM(4, 5, batch_first=True), TakesFirst(), nn.Linear(5, 2))


def names(layers: list[nn.Module]) -> list[str]:
    return [type(layer).__name__ for layer in layers]


def test_a_row_within_a_row_is_opened() -> None:
    relu = nn.ReLU()
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2), relu), nn.Sequential(nn.Sequential(nn.Linear(2, 2)), relu))
    assert names(flatten(model)) == ["Linear", "ReLU", "Linear", "ReLU"], "the same ReLU stands there twice"
    assert names(flatten(nn.Sequential(Skipping(nn.Linear(2, 2)), nn.ReLU()))) == ["Skipping", "ReLU"]


@pytest.mark.parametrize("model", [tiny.Spare(), Skipping(nn.Linear(2, 2)), nn.Linear(2, 2)])
def test_a_model_with_a_forward_pass_of_its_own_can_not_be_cut(model: nn.Module) -> None:
    with pytest.raises(CutError, match=f"{type(model).__name__} can't be cut between layers: only a torch.nn"):
        flatten(model)


@pytest.mark.parametrize(("network", "layers", "flattening"), [(alexnet, 21, 13), (vgg16, 39, 31)])
def test_the_papers_networks_can_be_cut_all_but_behind_the_flattening(
    network: Callable[[int], nn.Sequential], layers: int, flattening: int
) -> None:
    with torch.device("meta"):
        model = flatten(network(3))
    assert len(model) == layers and isinstance(model[flattening], nn.Flatten)
    assert list(uncuttable(model)) == [flattening]


@pytest.mark.parametrize(
    ("layers", "index", "message"),
    [
        (flatten(recurrent()), 1, r"layer 1 \(LSTM\) gives more than one tensor"),
        ([nn.GRUCell(2, 2), nn.LSTMCell(2, 2), nn.Linear(2, 2)], 1, r"layer 1 \(LSTMCell\) gives more than one tensor"),
        ([nn.MaxPool2d(2, return_indices=True), nn.Linear(2, 2)], 0, r"layer 0 \(MaxPool2d\) gives more than one"),
        (
            [nn.Linear(2, 2), nn.Flatten(), nn.Linear(2, 2)],
            1,
            r"layer 1 \(Flatten\) only views.*cut before it",
        ),
        ([nn.Flatten(), nn.ReLU(inplace=True), nn.Dropout(0.0), nn.Linear(2, 2)], 2, r"layer 0 \(Flatten\) only views"),
        ([nn.Flatten(), KeyedDropout(0.0, SampleKeys(0), 1), nn.Linear(2, 2)], 1, r"layer 0 \(Flatten\) only views"),
    ],
)
def test_layers_that_no_stage_ends_with(layers: list[nn.Module], index: int, message: str) -> None:
    assert index in uncuttable(layers)
    with pytest.raises(CutError, match=rf"stage 0 can't end with layer {index}: {message}"):
        check_cuts(layers, [0, index + 1], with_parameters=False)


def test_layers_with_one_output_can_end_a_stage() -> None:
    layers = [
        *(nn.GRUCell(2, 2), nn.MaxPool2d(2), nn.BatchNorm2d(2), nn.ReLU(inplace=True), nn.Flatten(), nn.Dropout(0.5)),
        *(nn.Identity(), nn.Linear(2, 2)),
    ]
    assert set(uncuttable(layers)) == {4}, "what drops something makes new memory"


def test_a_shared_parameter_stays_in_one_stage() -> None:
    first, last = nn.Linear(3, 3), nn.Linear(3, 3)
    last.weight = first.weight
    layers = [nn.Linear(3, 3), first, nn.ReLU(), last, nn.Linear(3, 3)]
    assert set(uncuttable(layers)) == {1, 2}
    with pytest.raises(CutError, match=r"layer 1 \(Linear\) and layer 3 \(Linear\) share a parameter"):
        check_cuts(layers, [0, 3])
    check_cuts(layers, [0, 1, 4])
    with pytest.raises(CutError, match="share a parameter"):
        check_cuts([first, nn.ReLU(), first], [0, 2])


@pytest.mark.parametrize("cuts", [[], [1, 2], [0, 2, 2], [0, 3, 1], [0, 4]])
def test_cuts_that_are_no_cuts(cuts: list[int]) -> None:
    layers: list[nn.Module] = [nn.Linear(2, 2) for _ in range(4)]
    with pytest.raises(
        CutError, match="for 4 layers: give the first layer of every stage, rising, from 0 to at most 3"
    ):
        check_cuts(layers, cuts)


def test_a_stage_without_parameters() -> None:
    layers = [nn.Linear(2, 2), nn.ReLU(), nn.Tanh(), nn.Linear(2, 2)]
    with pytest.raises(CutError, match=r"stage 1 has no parameter to train: layer 1 \(ReLU\) to layer 2 \(Tanh\)"):
        check_cuts(layers, [0, 1, 3])
    check_cuts(layers, [0, 1, 3], with_parameters=False)
    layers[3].requires_grad_(False)
    with pytest.raises(CutError, match="stage 1 has no parameter to train"):
        check_cuts(layers, [0, 1])


def gradients(model: nn.Module) -> list[Tensor]:
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(
        *(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.ReLU(inplace=True), nn.Linear(16, 5), nn.ReLU(inplace=True), nn.Linear(5, 2)),
    )


@pytest.mark.parametrize("first", [1, 2, 3, 4, 6, 7, 8])
def test_two_stages_are_the_model(first: int) -> None:
    """Whatever begins the second stage: it gets a leaf that it must not write to, and gives back its gradient."""
    whole, images = network(), torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(1))
    expected = whole(images)
    expected.square().sum().backward()
    layers = flatten(network())
    head, tail = stage_module(layers, 0, first - 1), stage_module(layers, first, len(layers) - 1)
    sent = head(images)
    received = sent.detach().clone().requires_grad_()
    before = received.detach().clone()
    output = tail(received)
    output.square().sum().backward()
    assert torch.equal(received, before)
    torch.autograd.backward(sent, received.grad)
    assert torch.equal(output, expected)
    for ours, theirs in zip([*gradients(head), *gradients(tail)], gradients(whole), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_layer_in_place_is_replaced_at_the_start_alone_and_in_the_stage_alone() -> None:
    layers = flatten(network())
    stage = stage_module(layers, 2, 7)
    assert [getattr(layer, "inplace", None) for layer in stage] == [False, None, None, True, None, True]
    assert all(layer.inplace for layer in (layers[2], layers[5], layers[7]))  # the model's own are as they were
    after_a_view = stage_module(layers, 4, 7)
    assert [getattr(layer, "inplace", None) for layer in after_a_view] == [None, False, None, True]
    assert stage[1] is layers[3] and stage[4] is layers[6], "all others are the model's"
    assert stage[0](torch.tensor([-1.0, 2.0])).tolist() == [0.0, 2.0]
