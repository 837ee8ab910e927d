"""FLOP of each layer by hand: the paper's equations, and what a layer really computes."""

from __future__ import annotations

import math

from lockstep.engine.models import flop_count
from lockstep.engine.models.layers import Network


def test_the_equations_give_their_worked_examples() -> None:
    assert flop_count.convolution(32, 25, 46 * 46) == 3_385_600
    assert flop_count.fully_connected(512, 1) == 1024
    assert flop_count.pooling(46, 32, 46) == 67_712
    assert flop_count.lstm(4, 128, 128) == 917_504


def test_the_network_of_table_2_layer_by_layer() -> None:
    """Sides 50-46-23-19-9-5-2: the 512 features of Table 2."""
    found = {layer.name: layer for layer in flop_count.network_layers(Network("cnn", 1))}
    assert list(found) == [
        "convolution 1", "pooling 1", "convolution 2", "pooling 2", "convolution 3", "pooling 3", "dense 1",
    ]  # fmt: skip
    assert [found[f"convolution {n}"].equation for n in (1, 2, 3)] == [3_385_600, 1_155_200, 160_000]
    assert [found[f"convolution {n}"].computed for n in (1, 2, 3)] == [3_385_600, 32 * 1_155_200, 64 * 160_000]
    assert found["dense 1"].computed == 1024 and found["pooling 1"].computed == 0


def test_equation_1_leaves_out_the_input_channels() -> None:
    colour = flop_count.network_layers(Network("cnn", 3))
    assert colour[0].computed == 3 * colour[0].equation


def test_the_lstm_has_no_equation_and_is_counted_all_the_same() -> None:
    layers = {layer.name: layer for layer in flop_count.network_layers(Network("convlstm", 1, classes=4))}
    assert math.isnan(layers["LSTM 1"].equation) and layers["LSTM 1"].computed == 917_504
    assert layers["dense 1"].computed == 2 * 128 * 64 and layers["dense 2"].computed == 2 * 64 * 4


def test_a_convolutional_lstm_computes_four_gates_for_every_frame() -> None:
    """5 frames of 10 x 50 pixels, 6 x 46 outputs: each gate convolves the frame (1 channel), and from the second frame
    on the state (16)."""
    (first, *_) = flop_count.network_layers(Network("convlstm2d", 1))
    assert first.name == "convolutional LSTM 1" and math.isnan(first.equation)
    assert first.computed == 2 * 4 * 16 * 25 * 6 * 46 * (5 * 1 + 4 * 16)


def test_without_pooling_sides_stay_large() -> None:
    layers = {layer.name: layer for layer in flop_count.network_layers(Network("cnn", 1, pooling="none"))}
    assert "pooling 1" not in layers and layers["dense 1"].computed == 2 * 128 * 38 * 38
