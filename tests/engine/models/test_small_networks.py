"""The networks of *ConvLSTM-D-Accel*: sizes of Table 2, options, where weights start, and one logit for two classes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from lockstep.engine.data.loader import Batch
from lockstep.engine.models.convlstm import LSTM, ConvLSTM2D, Positions, build_network
from lockstep.engine.models.layers import KINDS, POOLINGS, Network
from lockstep.engine.models.losses import binary_cross_entropy, cross_entropy, scores_of
from lockstep.engine.replica import TorchReplica
from lockstep.engine.replica.pipeline.cut import check_cuts, flatten, uncuttable


def possible() -> list[Network]:
    found = []
    for kind, pooling, dropout, batch_norm, channels, classes in itertools.product(
        KINDS, POOLINGS, (0.0, 0.3), (False, True), (1, 3), (2, 5)
    ):
        if (kind, pooling) != ("convlstm", "none"):
            found.append(Network(kind, channels, classes, pooling, dropout, batch_norm))
    return found


def on_meta(network: Network) -> nn.Sequential:
    with torch.device("meta"):
        return build_network(network)


def seeded(network: Network, seed: int = 1) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_network(network)


@pytest.mark.parametrize("network", possible(), ids=str)
def test_layers_have_the_shapes_that_the_list_says(network: Network) -> None:
    x = torch.empty(3, network.channels, 50, 50, device="meta")
    layers = on_meta(network)
    assert len(layers) == len(network.layers)
    for layer, shape in zip(layers, network.shapes[1:], strict=True):
        x = layer(x)
        assert tuple(x.shape) == (3, *shape), layer
    assert x.shape == (3, 1 if network.classes == 2 else network.classes)


@pytest.mark.parametrize("channels", [1, 3])
def test_table_2_flattens_512_features(channels: int) -> None:
    """The table omits the poolings; without them its 5 x 5 convolutions would leave 184,832 features."""
    network = Network("cnn", channels)
    assert [layer.kind for layer in network.layers] == [*["conv", "max_pool", "relu"] * 3, "flatten", "dense"]
    assert [layer.size for layer in network.layers if layer.kind == "conv"] == [32, 64, 128]
    assert network.shapes[-2] == (512,)
    assert Network("cnn", channels, pooling="none").shapes[-2] == (184_832,)
    assert (4, 128) in Network("convlstm", channels).shapes, "the same 512 as a sequence of 4 positions"


@pytest.mark.parametrize(
    ("network", "count"),
    [
        (Network("cnn", 1), 257_537),
        (Network("cnn", 3, 4), 260_676),
        (Network("convlstm", 1), 396_929),
        (Network("convlstm", 3, 4), 398_724),
        (Network("convlstm2d", 1), 98_049),
        (Network("cnn", 1, batch_norm=True), 257_537 + 2 * (32 + 64 + 128)),
        (Network("cnn", 1, pooling="none"), 257_024 + 184_833),
    ],
    ids=str,
)
def test_number_of_parameters(network: Network, count: int) -> None:
    assert sum(each.numel() for each in on_meta(network).parameters() if each.requires_grad) == count


def test_where_dropout_stands() -> None:
    """After each pooling and before the output; the CNN's last one does both."""

    def before(kind: str) -> list[str]:
        kinds = [layer.kind for layer in Network(kind, dropout=0.5).layers]
        return [kinds[place - 1] for place, name in enumerate(kinds) if name == "dropout"]

    assert before("cnn") == ["relu"] * 3, "behind a pooling"
    assert before("convlstm") == ["relu"] * 4
    assert before("convlstm2d") == ["max_pool", "relu"]
    assert all(layer.p == 0.5 for layer in on_meta(Network(dropout=0.5)) if isinstance(layer, nn.Dropout))
    assert not any(layer.kind == "dropout" for layer in Network().layers)


def test_max_pooling_before_relu_is_the_papers_order() -> None:
    """Bit for bit, forwards and backwards, where all are negative and where some are equal too."""
    x = torch.randn(2, 3, 9, 8, generator=torch.Generator().manual_seed(1)).round(decimals=1)
    x[0, 0], x[0, 1] = -1.0, 0.5
    gradients = []
    for layers in ((nn.MaxPool2d(2), nn.ReLU()), (nn.ReLU(), nn.MaxPool2d(2))):
        own = x.clone().requires_grad_()
        output = nn.Sequential(*layers)(own)
        output.square().sum().backward()
        gradients.append((output.detach(), own.grad))
    assert torch.equal(gradients[0][0], gradients[1][0])
    assert torch.equal(gradients[0][1], gradients[1][1])  # type: ignore[arg-type]


def test_average_pooling_and_batch_normalisation() -> None:
    kinds = [layer.kind for layer in Network(pooling="average", batch_norm=True).layers]
    assert kinds[:4] == ["conv", "batch_norm", "relu", "average_pool"]
    layers = on_meta(Network(pooling="average", batch_norm=True))
    assert isinstance(layers[1], nn.BatchNorm2d) and isinstance(layers[3], nn.AvgPool2d)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "rnn"}, "kind='rnn' does not exist; there are: cnn, convlstm, convlstm2d"),
        ({"pooling": "min"}, "pooling='min' does not exist"),
        ({"classes": 1}, "classes=1 is not possible; give a whole number of at least 2"),
        ({"classes": True}, "classes=True is not possible"),
        ({"channels": 0}, "channels=0 is not possible"),
        ({"dropout": 1.0}, "dropout=1.0 is no share of units"),
        ({"kind": "convlstm", "pooling": "none"}, "1,444 positions of unpooled features; give 'max'"),
    ],
)
def test_what_can_not_be_built(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Network(**values)  # type: ignore[arg-type]


def test_weights_start_as_kerass_do() -> None:
    layers = seeded(Network("convlstm", 3))
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            area = layer.weight[0, 0].numel() if layer.weight.ndim == 4 else 1
            bound = (6 / (area * sum(layer.weight.shape[:2]))) ** 0.5  # Glorot uniform
            assert 0.95 * bound < float(layer.weight.detach().abs().max()) <= bound or layer.weight.numel() < 100
            assert not layer.bias.any()
    (lstm,) = (layer for layer in layers if isinstance(layer, LSTM))
    state = lstm.recurrent.weight.detach()
    assert torch.allclose(state.T @ state, torch.eye(128), atol=1e-5), "orthogonal"
    assert lstm.input.bias.detach().view(4, 128).sum(1).tolist() == [0, 128, 0, 0], "the forget gates' are 1"
    bound = (6 / (128 + 512)) ** 0.5
    assert 0.95 * bound < float(lstm.input.weight.detach().abs().max()) <= bound


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_gives_the_start(kind: str) -> None:
    first, again, other = (list(seeded(Network(kind), seed).parameters()) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True) if a.ndim > 1)


def test_positions_are_laid_out_as_keras_flattens() -> None:
    x = torch.arange(2 * 3 * 2 * 2).view(2, 3, 2, 2)
    assert torch.equal(Positions()(x).flatten(1), x.permute(0, 2, 3, 1).flatten(1))


def test_the_lstm_is_torchs() -> None:
    (ours,) = (layer for layer in seeded(Network("convlstm")) if isinstance(layer, LSTM))
    theirs = nn.LSTM(128, 128, batch_first=True)
    pairs = {"weight_ih_l0": ours.input.weight, "bias_ih_l0": ours.input.bias, "weight_hh_l0": ours.recurrent.weight}
    theirs.load_state_dict({name: each.detach() for name, each in pairs.items()} | {"bias_hh_l0": torch.zeros(512)})
    x = torch.randn(5, 4, 128, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(ours(x), theirs(x)[0][:, -1], atol=1e-6)
    ours(x).square().sum().backward()
    theirs(x)[0][:, -1].square().sum().backward()
    for name, each in pairs.items():
        assert torch.allclose(each.grad, getattr(theirs, name).grad, atol=1e-5), name  # type: ignore[arg-type]


def test_a_convlstm2d_of_one_pixel_is_an_lstm() -> None:
    """With kernels that are 0 but in the middle, each pixel of the state has an LSTM of its own."""
    layer = ConvLSTM2D(2, 3)
    with torch.no_grad():
        for conv in (layer.input, layer.recurrent):
            middle = conv.weight[:, :, 2, 2].clone()
            conv.weight.zero_()
            conv.weight[:, :, 2, 2] = middle
    plain = LSTM(2, 3)
    plain.load_state_dict(
        {
            "input.weight": layer.input.weight[:, :, 2, 2].detach(),
            "input.bias": layer.input.bias.detach(),  # type: ignore[union-attr]
            "recurrent.weight": layer.recurrent.weight[:, :, 2, 2].detach(),
        }
    )
    x = torch.randn(2, 5, 2, 6, 7, generator=torch.Generator().manual_seed(1))
    state = layer(x)
    assert state.shape == (2, 3, 2, 3), "frames are not padded, the state is"
    for row, column in ((0, 0), (1, 2)):
        expected = plain(x[:, :, :, row + 2, column + 2])
        assert torch.allclose(state[:, :, row, column], expected, atol=1e-6)


def test_flop_are_counted_in_an_lstm_too() -> None:
    """torch's own LSTM would count as none: its products are hidden in one operator."""
    layer = LSTM(128, 128)
    with FlopCounterMode(display=False) as counter:
        layer(torch.zeros(2, 4, 128))
    assert counter.get_total_flops() == 2 * 2 * 512 * 128 * (4 + 3)  # the first state is 0, and not multiplied


@pytest.mark.parametrize("kind", KINDS)
def test_every_layer_may_begin_a_stage(kind: str) -> None:
    """But one behind a Flatten, whose output is a view."""
    layers = flatten(on_meta(Network(kind, dropout=0.3)))
    refused = uncuttable(layers)
    assert all("Flatten" in reason for reason in refused.values())
    for first in range(1, len(layers)):
        if first - 1 not in refused:
            check_cuts(layers, [0, first], with_parameters=False)
    assert len(refused) <= 1


# --- one logit ---


def test_one_logit_has_the_loss_and_scores_of_two() -> None:
    logit = torch.tensor([[-100.0], [-1.0], [0.0], [3.0], [200.0]])
    two = scores_of(logit)
    assert two.tolist() == [[0, -100], [0, -1], [0, 0], [0, 3], [0, 200]]
    for label in (0, 1):
        labels = torch.full((5,), label)
        losses = binary_cross_entropy(logit, labels)
        assert torch.allclose(losses, cross_entropy(two, labels)) and bool(losses.isfinite().all())
    assert torch.equal(scores_of(two), two)


@pytest.mark.parametrize("channels", [1, 3])
def test_channels_last_computes_the_same_and_stays_so(channels: int) -> None:
    """Of grey images both formats have the same memory: layers had taken them for contiguous, which is slower."""
    ids = np.arange(4)
    batch = Batch(np.random.default_rng(1).random((4, channels, 50, 50), np.float32), ids % 2, ids, 0)
    made = [
        TorchReplica(seeded(Network("convlstm", channels)), binary_cross_entropy, memory_format=name)
        for name in ("contiguous", "channels_last")
    ]
    seen = []
    made[1].model[0].register_forward_hook(lambda *given: seen.append(given[2]))  # type: ignore[index]
    losses = [replica.backward(batch, np.full(4, 0.25, np.float32)) for replica in made]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    assert torch.allclose(made[0].gradients, made[1].gradients, atol=1e-5)
    assert seen[0].is_contiguous(memory_format=torch.channels_last) and not seen[0].is_contiguous()


def test_a_replica_predicts_a_column_per_class() -> None:
    replica = TorchReplica(seeded(Network("cnn", 1)), binary_cross_entropy)
    ids = np.arange(3)
    images = np.random.default_rng(1).random((3, 1, 50, 50), np.float32)
    scores = replica.predict(Batch(images, ids % 2, ids, 0))
    assert scores.shape == (3, 2) and scores.dtype == torch.float32 and not scores[:, 0].any()
    assert len(set(scores[:, 1].tolist())) == 3
