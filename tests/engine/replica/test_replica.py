"""One worker's copy of the model: flat views of the model's own memory, and gradients that add up."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tiny
from lockstep.engine.data.keyed import STREAM_DROPOUT
from lockstep.engine.data.loader import Batch
from lockstep.engine.groups import Group
from lockstep.engine.models.losses import cross_entropy
from lockstep.engine.replica import TorchReplica
from lockstep.engine.replica.dropout import KeyedDropout, SampleKeys, key_dropout
from lockstep.engine.replica.torch import load_flat
from steps import on_ranks

DATA = tiny.arrays()


def batch(*ids: int, epoch: int = 0) -> Batch:
    chosen = np.array(ids, dtype=np.int64)
    return Batch(DATA.images[chosen], DATA.labels[chosen], chosen, epoch)


def even(count: int) -> np.ndarray:
    return np.full(count, 1 / count, np.float32)


def seeded(model: type[nn.Module] | object = tiny.net) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return model()  # type: ignore[operator]


def replica(model: object = tiny.net, flat: bool = True, **options: object) -> TorchReplica:
    """`flat`: gradients stand in a flat buffer, as a sync wants them."""
    made = TorchReplica(seeded(model), **options)  # type: ignore[arg-type]
    if flat:
        made.rebind(gradients=torch.full((made.length,), 77.0))  # whatever stood there must not count
        made.clear_gradients()
    return made


BOTH = pytest.mark.parametrize("flat", [False, True], ids=["autograd's own", "flat"])

# --- memory ---


def test_parameters_are_the_models_own_memory() -> None:
    model = seeded()
    before = torch.cat([p.detach().flatten() for p in model.parameters()])
    made = TorchReplica(model)
    assert torch.equal(made.parameters, before)
    assert made.length == before.numel() == sum(p.numel() for p in tiny.net().parameters())
    made.parameters.fill_(0.25)
    assert all(bool((p == 0.25).all()) for p in model.parameters())
    next(model.parameters()).data.zero_()
    assert bool((made.parameters[:135] == 0).all()), "5 x 3 x 3 x 3 weights come first"


def test_parts_are_layers_in_order() -> None:
    made = replica()
    assert [part.stop - part.start for part in made.layer_slices] == [140, 707, 24]
    assert made.layer_slices[0].start == 0
    assert all(a.stop == b.start for a, b in zip(made.layer_slices, made.layer_slices[1:], strict=False))
    assert made.layer_slices[-1].stop == made.length


def test_rebind_writes_its_own_parameters_into_the_new_memory() -> None:
    made = replica()
    before, place = made.parameters.clone(), torch.zeros(made.length)
    made.rebind(parameters=place)
    assert torch.equal(place, before)
    place.fill_(0.5)
    assert made.parameters is place
    assert all(bool((p == 0.5).all()) for p in made.model.parameters())


def test_rebind_can_adopt_what_stands_there() -> None:
    made = replica()
    place = torch.linspace(0, 1, made.length)
    made.rebind(parameters=place, adopt=True)
    assert torch.equal(torch.cat([p.detach().flatten() for p in made.model.parameters()]), torch.linspace(0, 1, 871))


def test_gradients_move_with_rebind() -> None:
    made = replica()
    elsewhere = torch.zeros(made.length)
    made.rebind(gradients=elsewhere)
    made.backward(batch(0, 1), even(2))
    assert made.gradients is elsewhere
    assert float(elsewhere.abs().sum()) > 0


def test_running_statistics_are_the_models_own_memory() -> None:
    made = replica(tiny.normalised_net)
    assert torch.equal(made.buffers, torch.cat([torch.zeros(5), torch.ones(5)]))
    made.backward(batch(*range(8)), even(8))
    norm = made.model[1]
    assert torch.equal(made.buffers[:5], norm.running_mean)
    assert float(made.buffers[:5].abs().sum()) > 0
    made.buffers.fill_(2.0)
    assert norm.running_var.tolist() == [2.0] * 5
    assert int(norm.num_batches_tracked) == 1, "counters are whole numbers and stay where they are"


def test_flat_parameters_go_into_a_plain_model() -> None:
    made = replica(tiny.normalised_net)
    made.backward(batch(*range(8)), even(8))
    plain = tiny.normalised_net()
    load_flat(plain, made.parameters, made.buffers, made.others())
    assert int(plain[1].num_batches_tracked) == 1
    assert torch.equal(plain.eval()(torch.from_numpy(DATA.images)), made.predict(batch(*range(tiny.SAMPLES))))
    made.parameters.zero_()
    assert float(plain[0].weight.detach().abs().sum()) > 0, "a copy"


class Mixed(nn.Module):
    """A frozen parameter, and buffers of four types: one in two places, one that is set later, one that is replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(126, 3)
        self.table = nn.Parameter(torch.ones(2, 3, dtype=torch.float16), requires_grad=False)
        self.register_buffer("count", torch.zeros((), dtype=torch.int32))
        self.register_buffer("phase", torch.tensor([1 + 2j]), persistent=False)
        self.register_buffer("mask", torch.tensor([True, False, True]))
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("late", None)
        self.inner.register_buffer("same", self.mask)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.inner(x.flatten(1)) * self.mask + self.table.sum()
        self.mean = 0.5 * self.mean + output.mean(0)
        self.count = self.count + 1
        self.late = torch.ones(2, dtype=torch.int64)
        return output


OTHERS = {"table": torch.float16, "count": torch.int32, "phase": torch.complex64, "mask": torch.bool}


def test_what_is_not_in_the_flat_vectors_is_known_by_name() -> None:
    made = replica(Mixed)
    assert {name: each.dtype for name, each in made.others().items()} == OTHERS
    made.backward(batch(0, 1), even(2))
    made.adopt_buffers()
    assert made.buffers.tolist() == made.model.mean.tolist() and float(made.buffers.abs().sum()) > 0
    kept = {name: each.clone() for name, each in made.others(frozen=False).items()}
    assert sorted(kept) == ["count", "late", "mask", "phase"] and int(kept["count"]) == 1
    fresh, plain = replica(Mixed), seeded(Mixed)
    fresh.take_others({"mask": torch.tensor([False] * 3), "late": kept["late"], "of another": torch.zeros(1)})
    assert not fresh.model.inner.same.any() and torch.equal(fresh.model.late, kept["late"])
    load_flat(plain, made.parameters, made.buffers, made.others())
    assert int(plain.count) == 1 and torch.equal(plain.mean, made.buffers) and torch.equal(plain.late, kept["late"])
    assert [(entry.name, entry.kind) for entry in made.layout.entries][:3] == [
        *(("table", "frozen"), ("inner.weight", "trained"), ("inner.bias", "trained"))
    ]


def test_ranks_start_alike_and_agree() -> None:
    """Whole numbers and truth values are rank 0's, other floating point numbers the mean."""

    def run(group: Group) -> dict[str, Tensor]:
        made = replica(Mixed)
        value = group.rank + 1
        made.take_others({"table": torch.full((2, 3), value, dtype=torch.float16), "phase": torch.tensor([value + 0j])})
        made.start_alike(group)
        assert bool((made.model.table == 1).all()) and made.model.phase.tolist() == [1]
        made.take_others({"phase": torch.tensor([value * 1j]), "count": torch.tensor(value, dtype=torch.int32)})
        made.agree_on_others(group)
        return made.others()

    for found in on_ranks(3, run):
        assert found["phase"].tolist() == [2j] and int(found["count"]) == 1
        assert {name: each.dtype for name, each in found.items()} == OTHERS


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.complex64])
def test_parameters_in_another_precision_are_refused(dtype: torch.dtype) -> None:
    """Seen: they became float32 without a word."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3, dtype=dtype))
    with pytest.raises(
        ValueError, match=r"parameter '1.weight' is \w+, and parameters are trained in float32; give the"
    ):
        TorchReplica(model)


# --- gradients ---


@BOTH
def test_gradients_and_loss_are_those_of_plain_torch(flat: bool) -> None:
    model = seeded(tiny.normalised_net)
    plain = copy.deepcopy(model)
    made = replica(tiny.normalised_net, flat)
    weights = np.array([0.5, 0.125, 0.25, 0.0], np.float32)
    got = made.backward(batch(3, 1, 4, 5), weights)
    output = plain(torch.from_numpy(DATA.images[[3, 1, 4, 5]]))
    losses = nn.functional.cross_entropy(output, torch.from_numpy(DATA.labels[[3, 1, 4, 5]]), reduction="none")
    total = (losses * torch.from_numpy(weights)).sum()
    total.backward()
    assert got == pytest.approx(float(total.detach()), rel=1e-6)
    expected = torch.cat([p.grad.flatten() for p in plain.parameters() if p.grad is not None])
    assert torch.allclose(made.gradients, expected, atol=1e-7)


def test_training_alone_is_plain_torch() -> None:
    """Five steps of SGD with momentum, no dropout: the baseline is what a reader would have written."""
    made, plain = replica(tiny.Spare, flat=False), seeded(tiny.Spare)
    ours, theirs = tiny.SGD(made.leaves), torch.optim.SGD(plain.parameters(), lr=0.05, momentum=0.9)
    for step in range(5):
        ids = range(5 * step, 5 * step + 5)
        loss = made.backward(batch(*ids), even(5))
        ours.step()
        made.clear_gradients()
        theirs.zero_grad()
        expected = nn.functional.cross_entropy(
            plain(torch.from_numpy(DATA.images[list(ids)])), torch.from_numpy(DATA.labels[list(ids)])
        )
        expected.backward()
        theirs.step()
        assert loss == pytest.approx(float(expected.detach()), rel=1e-5)
    assert torch.allclose(made.parameters, torch.cat([p.detach().flatten() for p in plain.parameters()]), atol=1e-6)


@BOTH
def test_micro_batches_add_up_to_the_batch(flat: bool) -> None:
    """With dropout, and sizes 3, 1, 0 and 4."""
    whole, pieces = replica(flat=flat), replica(flat=flat)
    loss = whole.backward(batch(*range(8)), even(8))
    parts = (range(3), range(3, 4), range(0), range(4, 8))
    losses = [pieces.backward(batch(*ids), even(8)[: len(ids)]) for ids in parts]
    assert sum(losses) == pytest.approx(loss, rel=1e-6)
    assert torch.allclose(pieces.gradients, whole.gradients, atol=1e-7)


@BOTH
def test_clear_gradients_makes_the_next_backward_replace(flat: bool) -> None:
    made, fresh = replica(flat=flat), replica(flat=flat)
    made.backward(batch(0, 1, 2), even(3))
    made.clear_gradients()
    made.backward(batch(3, 4), even(2))
    fresh.backward(batch(3, 4), even(2))
    assert torch.equal(made.gradients, fresh.gradients)


@BOTH
def test_an_empty_batch_has_no_gradient(flat: bool) -> None:
    made = replica(flat=flat)
    assert made.backward(batch(), even(1)[:0]) == 0.0
    assert torch.equal(made.gradients, torch.zeros(made.length))


def test_a_layer_that_was_not_used_has_gradient_zero() -> None:
    made = replica(tiny.Spare)
    for _ in range(2):
        made.backward(batch(0, 1), even(2))
    unused, twice, _ = (made.gradients[part] for part in made.layer_slices)
    assert float(unused.abs().sum()) == 0.0
    assert float(twice.abs().sum()) > 0


@pytest.mark.parametrize("ids", [(0, 1, 2), ()], ids=["three samples", "empty"])
@pytest.mark.parametrize("model", [tiny.net, tiny.normalised_net, tiny.Spare])
def test_every_part_is_ready_exactly_once_with_its_gradient_standing(model: object, ids: tuple[int, ...]) -> None:
    made = replica(model)
    seen: dict[int, Tensor] = {}

    def ready(part: int) -> None:
        assert part not in seen
        seen[part] = made.gradients[made.layer_slices[part]].clone()

    made.backward(batch(*ids), np.ones(len(ids), np.float32), ready)
    assert sorted(seen) == list(range(len(made.layer_slices)))
    for part, gradient in seen.items():
        assert torch.equal(gradient, made.gradients[made.layer_slices[part]])
    seen.clear()
    made.backward(batch(*ids), np.ones(len(ids), np.float32))
    assert not seen, "only those who ask are told"


def test_the_last_layer_is_ready_first() -> None:
    """So that exchange can overlap the rest of the backward pass."""
    order: list[int] = []
    replica().backward(batch(0, 1), even(2), order.append)
    assert order == [2, 1, 0]


def test_frozen_parameters_are_left_alone() -> None:
    model = seeded()
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    made = TorchReplica(model)
    assert made.length == 731
    made.rebind(gradients=torch.zeros(731))
    made.backward(batch(0, 1), even(2))
    made.parameters.zero_()
    assert torch.equal(model[0].weight, before)


def test_a_parameter_that_two_layers_share_counts_once() -> None:
    first, second = nn.Linear(126, 126), nn.Linear(126, 126)
    second.weight = first.weight
    made = TorchReplica(nn.Sequential(nn.Flatten(), first, nn.ReLU(), second, nn.Linear(126, 3)))
    assert made.length == 126 * 126 + 126 + 126 + 126 * 3 + 3


def test_a_model_without_parameters_is_refused() -> None:
    with pytest.raises(ValueError, match="Flatten has no parameter to train; give a model with requires_grad=True"):
        TorchReplica(nn.Flatten())


def test_a_loss_of_ones_own() -> None:
    made = replica(loss=lambda output, labels: output.sum(dim=1) * 0 + 2.0)
    assert made.backward(batch(0, 1, 2), np.array([1, 2, 4], np.float32)) == pytest.approx(14.0)


def test_cross_entropy_is_per_sample() -> None:
    losses = cross_entropy(torch.zeros(4, 3, dtype=torch.bfloat16), torch.tensor([0, 1, 2, 0]))
    assert losses.dtype == torch.float32
    assert losses.tolist() == pytest.approx([np.log(3)] * 4)


# --- precision, prediction ---


def test_bfloat16_computes_in_bfloat16_and_keeps_float32() -> None:
    exact, coarse = replica(), replica(precision="bfloat16")
    ids = range(16)
    expected, got = exact.backward(batch(*ids), even(16)), coarse.backward(batch(*ids), even(16))
    assert got != expected
    assert got == pytest.approx(expected, rel=0.02)
    assert coarse.parameters.dtype == coarse.gradients.dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(coarse.gradients, exact.gradients, dim=0) > 0.99
    assert coarse.predict(batch(0)).dtype == torch.float32


def test_predict_is_evaluation_and_leaves_training_as_it_was() -> None:
    """No dropout, statistics unchanged, no graph; the next backward is as if nothing had happened."""
    made, other = replica(), replica()
    first = made.predict(batch(0, 1, 2))
    assert torch.equal(first[1:2], made.predict(batch(1)))
    assert not first.requires_grad
    assert made.model.training
    assert made.backward(batch(0, 1), even(2)) == other.backward(batch(0, 1), even(2))
    normalised = replica(tiny.normalised_net)
    before = normalised.buffers.clone()
    normalised.predict(batch(0, 1, 2))
    assert torch.equal(normalised.buffers, before)


def test_predict_that_fails_leaves_training_on() -> None:
    made = replica()
    with pytest.raises(RuntimeError):
        made.predict(Batch(np.zeros((1, 4, 7, 6), np.float32), np.zeros(1, np.int64), np.zeros(1, np.int64), 0))
    assert made.model.training


# --- dropout ---


def masks(ids: list[int], epoch: int = 0, seed: int = 0, stream: int = STREAM_DROPOUT) -> Tensor:
    layer = KeyedDropout(0.3, SampleKeys(seed, epoch, np.array(ids)), stream)
    return layer(torch.ones(len(ids), 4, 250))


def test_a_samples_mask_does_not_depend_on_its_batch() -> None:
    whole = masks([5, 9, 2, 7])
    assert torch.equal(masks([2, 5]), whole[[2, 0]])
    assert not torch.equal(whole[0], whole[1])
    for changed in (masks([5], epoch=1), masks([5], seed=1), masks([5], stream=STREAM_DROPOUT + 1)):
        assert not torch.equal(changed[0], whole[0])


def test_dropout_keeps_the_mean() -> None:
    kept = masks(list(range(50)))
    assert sorted(set(kept.flatten().tolist())) == pytest.approx([0.0, 1 / 0.7])
    assert float(kept.mean()) == pytest.approx(1.0, abs=0.01)  # 50 000 draws: a deviation of 0.003


def test_dropout_is_off_in_evaluation_and_at_probability_zero() -> None:
    ones = torch.ones(2, 3)
    layer = KeyedDropout(0.3, SampleKeys(0, 0, np.array([1, 2])), 0)
    assert layer.eval()(ones) is ones
    assert KeyedDropout(0.0, SampleKeys(0), 0)(ones) is ones


def test_a_mask_needs_a_row_per_sample() -> None:
    layer = KeyedDropout(0.3, SampleKeys(0, 0, np.array([1, 2])), 0)
    with pytest.raises(ValueError, match="dropout got 6 rows for 2 samples; keep the sample dimension first"):
        layer(torch.ones(6, 1))


def test_every_dropout_of_a_model_is_keyed_with_a_stream_of_its_own() -> None:
    """Also one that stands in several places."""
    same = nn.Dropout(0.5)
    model = nn.Sequential(nn.Dropout(0.1), same, nn.Sequential(nn.ReLU(), same), same)
    key_dropout(model, SampleKeys(0))
    found = [model[0], model[1], model[3], model[2][1]]
    assert all(isinstance(layer, KeyedDropout) for layer in found)
    assert len({layer.stream for layer in found}) == 4
    assert [layer.p for layer in found] == [0.1, 0.5, 0.5, 0.5]


def test_torchs_own_generator_is_not_used() -> None:
    losses = []
    for seed in (1, 2):
        made = replica()
        torch.manual_seed(seed)
        losses.append(made.backward(batch(0, 1, 2), even(3)))
    assert losses[0] == losses[1]
