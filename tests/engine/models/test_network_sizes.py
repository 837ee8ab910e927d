"""Networks of other sizes than Table 2's, and the heads that stand beside the LSTM's."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from lockstep.engine.job import Job, JobError
from lockstep.engine.models.convlstm import LSTM, Gated, Shuffled, Values, build_network
from lockstep.engine.models.flop_count import network_layers
from lockstep.engine.models.layers import HEADS, TORCH_HEADS, Network, shuffled_order
from lockstep.engine.replica import TorchReplica
from lockstep.engine.replica.pipeline.cut import flatten, uncuttable
from lockstep.engine.usecases import USE_CASES, UseCase

SIZED = [
    Network("cnn", 1, convolutions=1),
    Network("cnn", 1, convolutions=2, dropout=0.3, batch_norm=True),
    Network("cnn", 1, convolutions=2, pooling="none"),
    Network("convlstm", 1, convolutions=2, lstm_units=16, dense_units=8),
    Network("convlstm", 1, 5, pooling="average", lstm_units=48, dense_units=24, dropout=0.2),
    *(Network("convlstm", 1, head=head, dropout=0.2) for head in HEADS),
]


def on_meta(network: Network) -> nn.Sequential:
    with torch.device("meta"):
        return build_network(network)


def parameters(network: Network, trained: bool = False) -> int:
    return sum(each.numel() for each in on_meta(network).parameters() if each.requires_grad or not trained)


def head_of(network: Network) -> int:
    """Parameters behind the convolutions."""
    return parameters(network) - parameters(Network("cnn", 1)) + 513


@pytest.mark.parametrize("network", SIZED, ids=repr)
def test_layers_have_the_shapes_that_the_list_says(network: Network) -> None:
    x = torch.empty(3, network.channels, 50, 50, device="meta")
    layers = on_meta(network)
    assert len(layers) == len(network.layers)
    for layer, shape in zip(layers, network.shapes[1:], strict=True):
        x = layer(x)
        assert tuple(x.shape) == (3, *shape), layer


def test_the_present_sizes_are_the_defaults() -> None:
    for kind in ("cnn", "convlstm"):
        assert Network(kind).layers == Network(kind, lstm_units=128, dense_units=64, convolutions=3).layers
    assert Network("convlstm").layers == Network("convlstm", head="lstm").layers


@pytest.mark.parametrize(
    ("network", "count"),
    [
        (Network("cnn", 1, convolutions=1), 832 + 16_928 + 1),
        (Network("cnn", 1, convolutions=2), 832 + 51_264 + 5_185),
        (Network("convlstm", 1, lstm_units=32, dense_units=16), 257_024 + 4 * 32 * (128 + 32 + 1) + 33 * 16 + 17),
        (Network("convlstm", 1, convolutions=2), 832 + 51_264 + 4 * 128 * (64 + 128 + 1) + 129 * 64 + 65),
    ],
    ids=repr,
)
def test_number_of_parameters(network: Network, count: int) -> None:
    assert parameters(network) == count


@pytest.mark.parametrize("network", [*SIZED, Network("convlstm2d", batch_norm=True)], ids=repr)
def test_parameters_are_counted_without_torch(network: Network) -> None:
    assert network.parameters == parameters(network)
    if network.kind == "convlstm" and network.convolutions == 3:
        assert network.head_parameters == head_of(network) or network.channels * network.classes > 2


def test_the_lstms_head_and_those_as_large() -> None:
    """The CNN's head has 513 parameters; a dense head and a gated one have the LSTM's 139,905 within 1 %."""
    assert parameters(Network("cnn", 1)) - 257_024 == 513
    sizes = {head: head_of(Network("convlstm", 1, head=head)) for head in HEADS}
    assert sizes["lstm"] == sizes["default"] == sizes["shuffled"] == sizes["frozen"] == 139_905
    assert sizes["dense"] == 513 * 242 + 243 * 64 + 65 == 139_763
    assert sizes["one_step"] == 3 * 513 * 87 + 88 * 64 + 65 == 139_590
    assert sizes["long"] == 4 * 128 * (1 + 128 + 1) + 129 * 64 + 65, "a step has one value, not 128"


@pytest.mark.parametrize("head", ["dense", "one_step"])
@pytest.mark.parametrize("units", [32, 128, 200])
@pytest.mark.parametrize("classes", [2, 4])
def test_heads_as_large_as_any_lstm(head: str, units: int, classes: int) -> None:
    lstm, other = (head_of(Network("convlstm", 1, classes, lstm_units=units, head=each)) for each in ("lstm", head))
    assert abs(other - lstm) <= 0.01 * lstm


def test_a_frozen_lstm_is_not_trained_and_all_else_is() -> None:
    frozen = on_meta(Network("convlstm", 1, head="frozen"))
    still = {name for name, each in frozen.named_parameters() if not each.requires_grad}
    (place,) = (str(number) for number, layer in enumerate(frozen) if isinstance(layer, LSTM))
    assert still == {f"{place}.input.weight", f"{place}.input.bias", f"{place}.recurrent.weight"}
    assert parameters(Network("convlstm", 1, head="frozen"), trained=True) == 396_929 - 4 * 128 * 257


def test_a_frozen_lstm_stays_as_it_starts() -> None:
    case = UseCase.of(Network("convlstm", 1, head="frozen"), "own")
    torch.manual_seed(1)
    replica = TorchReplica(case.model(), case.loss)
    held = replica.others()
    assert len(held) == 3 and replica.length == 396_929 - 131_584
    before = {name: each.clone() for name, each in held.items()}
    images = torch.rand(4, 1, 50, 50, generator=torch.Generator().manual_seed(1))
    loss = case.loss(replica.model(images), torch.tensor([0, 1, 0, 1])).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.optim.SGD(replica.leaves, lr=0.1).step()
    assert all(torch.equal(each, before[name]) for name, each in replica.others().items())
    first = next(iter(replica.leaves))
    assert first.grad is not None and first.grad.abs().max() > 0, "the gradient passes through it"


@pytest.mark.parametrize(("positions", "order"), [(1, (0,)), (4, (2, 0, 3, 1)), (5, (4, 2, 0, 3, 1))])
def test_the_order_of_shuffled_positions(positions: int, order: tuple[int, ...]) -> None:
    assert shuffled_order(positions) == order
    x = torch.arange(2 * positions * 3).view(2, positions, 3)
    assert torch.equal(Shuffled(positions)(x), torch.stack([x[:, place] for place in order], 1))


@pytest.mark.parametrize("positions", [4, 9, 16, 81])
def test_a_shuffled_order_has_each_position_once_and_no_neighbors_in_a_row(positions: int) -> None:
    order = shuffled_order(positions)
    assert sorted(order) == list(range(positions))
    assert all(abs(a - b) > 1 for a, b in itertools.pairwise(order))


def test_values_come_position_by_position() -> None:
    x = torch.arange(2 * 3 * 2 * 2).view(2, 3, 2, 2)
    assert torch.equal(Values()(x), x.permute(0, 2, 3, 1).reshape(2, 12, 1))


def test_a_gated_layer_is_the_first_step_of_an_lstm() -> None:
    """With its three gates' weights in an LSTM, whose forget gate and recurrent weights do not matter then."""
    torch.manual_seed(1)
    ours, theirs = Gated(6, 5), LSTM(6, 5)
    with torch.no_grad():
        for name in ("weight", "bias"):
            passed, new, shown = getattr(ours.input, name).chunk(3)
            mine = getattr(theirs.input, name)
            mine.copy_(torch.cat([passed, torch.full_like(passed, 9.0), new, shown]))
    x = torch.randn(4, 6)
    assert torch.allclose(ours(x), theirs(x[:, None]), atol=1e-6)


@pytest.mark.parametrize("head", ["one_step", "frozen", "dense"])
def test_flop_of_a_head_are_those_that_torch_counts(head: str) -> None:
    network = Network("convlstm", 1, head=head)
    with FlopCounterMode(display=False) as counter:
        on_meta(network)(torch.empty(1, 1, 50, 50, device="meta"))
    assert sum(layer.computed for layer in network_layers(network)) == counter.get_total_flops()


@pytest.mark.parametrize("head", HEADS)
def test_every_layer_of_a_head_may_begin_a_stage(head: str) -> None:
    refused = uncuttable(flatten(on_meta(Network("convlstm", head=head))))
    assert all("Flatten" in reason for reason in refused.values())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"convolutions": 0}, "convolutions=0 is not possible: 50 x 50 pixels carry 3 of 5 x 5 pixels"),
        ({"convolutions": 4}, "give a whole number from 1 to 3"),
        ({"convolutions": True}, "convolutions=True is not possible"),
        ({"kind": "convlstm2d", "convolutions": 2}, "convolutions=2 with kind='convlstm2d', whose LSTM has"),
        ({"lstm_units": 64}, "lstm_units=64 with kind='cnn', which has no such layer; give kind='convlstm'"),
        ({"kind": "convlstm2d", "dense_units": 32}, "dense_units=32 with kind='convlstm2d', which has no such layer"),
        ({"head": "dense"}, "head='dense' with kind='cnn', which has no such layer"),
        ({"kind": "convlstm", "head": "mlp"}, "head='mlp' does not exist; there are: default, lstm, dense"),
        ({"kind": "convlstm", "lstm_units": 0}, "lstm_units=0 is not possible; give a whole number of at least 1"),
        ({"kind": "convlstm", "dense_units": 1.5}, "dense_units=1.5 is not possible"),
        ({"kind": "convlstm", "convolutions": 1}, "LSTM over the 529 positions .* at most 512; give convolutions=3"),
        ({"kind": "convlstm", "convolutions": 2, "head": "long"}, "head='long': an LSTM over the 5,184 values"),
        ({"kind": "convlstm", "pooling": "none", "head": "dense"}, "over 184,832 features no whole number of units"),
        ({"kind": "convlstm", "lstm_units": 8, "head": "dense"}, "head='dense' of 8 unit"),
    ],
)
def test_what_can_not_be_built(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Network(**values)  # type: ignore[arg-type]


def learning(**fields: object) -> Job:
    return Job.of("sequential", use_case="Pneumonia", epochs=1, **fields)


def test_a_job_has_its_sizes() -> None:
    case = USE_CASES["Pneumonia"]
    fields = {"network": "convlstm", "lstm_units": 32, "dense_units": 16, "convolutions": 2, "head": "shuffled"}
    network = case.for_job(learning(**fields)).network
    assert network == Network("convlstm", 1, lstm_units=32, dense_units=16, convolutions=2, head="shuffled")
    assert case.for_job(learning(network="convlstm")).network == Network("convlstm", 1), "0: the network's own"
    assert learning(network="convlstm", head="long").label.startswith("Pneumonia convlstm long sequential")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"convolutions": 4}, "convolutions=4 is not possible; give a whole number of at least 0 and of at most 3"),
        ({"lstm_units": -1}, "lstm_units=-1 is not possible"),
        ({"head": "mlp"}, "head='mlp' does not exist; there are: default, lstm"),
        ({"lstm_units": 64}, "lstm_units=64 with kind='cnn'"),
        ({"network": "convlstm", "convolutions": 1}, "an LSTM over the 529 positions"),
        ({"use_case": "SimpleBig", "head": "dense"}, "head='dense' with use_case='SimpleBig', whose network is given"),
        *(
            ({"network": "convlstm", "framework": "tensorflow", "head": head}, "only torch has it; give framework")
            for head in TORCH_HEADS
        ),
        ({"launcher": "spark_driver", "sync": "sparknet", "lstm_units": 8}, "lstm_units=8 is not built for sync"),
    ],
)
def test_jobs_that_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(JobError, match=message):
        job = Job(**{"use_case": "Pneumonia", **fields})  # type: ignore[arg-type]
        USE_CASES[job.use_case].for_job(job)
