"""Fully connected layers split over ranks: the exchange of rows, what a rank holds, gradients of the whole model.

Ranks are threads here, with a gloo group of their own: no process is started.
"""

from __future__ import annotations

import copy
import datetime
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import tiny
from lockstep.engine.data.sampling import share_of
from lockstep.engine.groups import Group, GroupError
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job
from lockstep.engine.models.alexnet import alexnet
from lockstep.engine.models.vgg import vgg16
from lockstep.engine.replica import TorchReplica
from lockstep.engine.replica.dropout import KeyedDropout, SampleKeys
from lockstep.engine.replica.rows import Gather, Rows, SumOwn
from lockstep.engine.replica.split_head import SplitHeadReplica, find_head, split_head_replica
from lockstep.engine.sync import SYNCS, Plan, Sync
from lockstep.engine.sync.allreduce import AllreduceSync
from lockstep.engine.sync.local import LocalSync
from steps import PLAN, SGD, batch, on_ranks
from together import TOLERANCE

SIZES = pytest.mark.parametrize("ranks", [2, 3])
LENGTH = sum(each.numel() for each in tiny.deep_net().parameters())


def with_gloo(ranks: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """`on_ranks`, whose groups have a torch group too."""
    store = dist.HashStore()

    def run(group: Group) -> Any:
        limit = datetime.timedelta(seconds=20)
        group.torch_group = lambda: dist.ProcessGroupGloo(store, group.rank, ranks, limit)  # type: ignore[method-assign]
        return function(group, *arguments)

    return on_ranks(ranks, run)


def seeded(model: Callable[[], nn.Module] = tiny.deep_net) -> nn.Module:
    generator = torch.Generator().manual_seed(3)
    made = model()
    with torch.no_grad():
        for each in made.parameters():
            each.copy_(torch.empty_like(each).uniform_(-0.3, 0.3, generator=generator))
    return made


def replica(group: Group, model: Callable[[], nn.Module] = tiny.deep_net, **options: Any) -> SplitHeadReplica:
    made = SplitHeadReplica(seeded(model), group, **options)
    made.rebind(gradients=torch.full((made.length,), 77.0))
    made.clear_gradients()
    return made


def whole_replica(model: Callable[[], nn.Module] = tiny.deep_net, **options: Any) -> TorchReplica:
    return TorchReplica(seeded(model), **options)


# --- which layers ---


def test_the_heads_of_the_papers_networks() -> None:
    with torch.device("meta"):
        assert find_head(alexnet(3), 2) == (15, 18)
        assert find_head(vgg16(3), 2) == (32, 35)
    assert find_head(tiny.net(), 2) == (4, 6)
    assert find_head(nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)), 5) == (1, 3)
    before = nn.Sequential(nn.Linear(3, 3), nn.Conv1d(3, 3, 1), nn.Flatten(), nn.Linear(9, 5), nn.Linear(5, 3))
    assert find_head(before, 2) == (3, 4)


CONVOLVED = (nn.Conv2d(3, 5, 3), nn.Flatten())
REFUSED: dict[str, tuple[nn.Module, str]] = {
    "not flat": (tiny.Spare(), "in a flat nn.Sequential only, not in a Spare"),
    "none": (nn.Sequential(*CONVOLVED), "this model has 0 behind layer 0, not counting any inside another layer"),
    "one": (tiny.normalised_net(), "this model has 1 behind layer 0"),
    "inside": (nn.Sequential(*CONVOLVED, nn.Sequential(nn.Linear(9, 9), nn.Linear(9, 3))), "has 0 behind layer 0"),
    "before": (nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6), nn.Conv2d(3, 3, 3)), "has 0 behind layer 2"),
    "normalised": (
        nn.Sequential(*CONVOLVED, nn.Linear(100, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3)),
        r"layers 2 and 5; layer 4 between them is LayerNorm\(.*\), which does not work unit by unit",
    ),
    "softmax": (nn.Sequential(nn.Linear(9, 8), nn.Softmax(1), nn.Linear(8, 3)), "layer 1 between them is Softmax"),
    "few units": (
        nn.Sequential(nn.Linear(9, 2), nn.ReLU(), nn.Linear(2, 3)),
        "has 2 units for 3 ranks",
    ),
}


@pytest.mark.parametrize(("model", "why"), REFUSED.values(), ids=list(REFUSED))
def test_a_model_without_such_a_head_is_refused(model: nn.Module, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        find_head(model, 3)


def test_layers_that_share_parameters_are_refused() -> None:
    twice = nn.Linear(8, 8)
    tied = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 8))
    tied[3].weight = tied[0].weight
    for model in (nn.Sequential(twice, nn.ReLU(), twice), tied):
        with pytest.raises(ValueError, match="layers 0 and 2 can't be split: they share parameters; give each its own"):
            with_gloo(2, lambda group, model=model: SplitHeadReplica(copy.deepcopy(model), group))


def test_activations_that_are_not_flat_are_refused() -> None:
    model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))

    def run(group: Group) -> None:
        SplitHeadReplica(copy.deepcopy(model), group).predict(batch(np.arange(2), 0))

    with pytest.raises(ValueError, match=r"layer 1 gets \[2, 5, 5, 4\].*put an nn.Flatten before it"):
        with_gloo(2, run)


def test_ranks_that_are_threads_have_no_torch_group() -> None:
    with pytest.raises(GroupError, match="needs a process per rank"):
        SplitHeadReplica(seeded(), ThreadGroup.of(2)[0])


# --- rows ---

SHARES = pytest.mark.parametrize("counts", [[3, 3], [3, 2], [0, 4], [2, 0, 1], [2, 1, 1]], ids=str)


def rows_of(group: Group, counts: list[int]) -> Rows:
    rows, start = Rows(group), sum(counts[: group.rank])
    ids = np.arange(start, start + counts[group.rank]) * 10
    assert rows.begin(ids).tolist() == [10 * place for place in range(sum(counts))]
    assert rows.counts == counts
    return rows


def exchanged(group: Group, counts: list[int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows x and an addend y of this rank; what gathering the one and summing the other gives."""
    rows, dice = rows_of(group, counts), torch.Generator().manual_seed(group.rank)
    x = torch.randn(counts[group.rank], 5, generator=dice)
    y = torch.randn(sum(counts), 5, generator=dice)
    return x, y, rows.gather(x), rows.sum_own(y)


@SHARES
def test_rows_are_gathered_by_rank_and_sums_go_to_their_owner(counts: list[int]) -> None:
    own, addends, gathered, sums = zip(*with_gloo(len(counts), exchanged, counts), strict=True)
    assert all(torch.equal(each, torch.cat(own)) for each in gathered)
    assert torch.allclose(torch.cat(sums), torch.stack(addends).sum(0))
    assert [len(each) for each in sums] == counts


@SHARES
def test_the_one_is_the_transpose_of_the_other(counts: list[int]) -> None:
    """<gather x, y> over all ranks = <x, sum_own y>, which two exchanges must fulfil to be each other's gradient."""
    own, addends, gathered, sums = zip(*with_gloo(len(counts), exchanged, counts), strict=True)
    there = sum(float((a * b).sum()) for a, b in zip(gathered, addends, strict=True))
    back = sum(float((a * b).sum()) for a, b in zip(own, sums, strict=True))
    assert there == pytest.approx(back, rel=1e-5)


@SHARES
def test_autograd_goes_back_through_the_other_exchange(counts: list[int]) -> None:
    def run(group: Group) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        rows, dice = rows_of(group, counts), torch.Generator().manual_seed(group.rank)
        x = torch.randn(counts[group.rank], 5, generator=dice, requires_grad=True)
        y = torch.randn(sum(counts), 5, generator=dice, requires_grad=True)
        (Gather.apply(x, rows) * y.detach()).sum().backward()
        (SumOwn.apply(y, rows) * x.detach()).sum().backward()
        assert x.grad is not None and y.grad is not None
        return x.detach(), y.detach(), x.grad, y.grad

    own, addends, of_own, of_addends = zip(*with_gloo(len(counts), run), strict=True)
    assert torch.allclose(torch.cat(of_own), torch.stack(addends).sum(0))
    assert all(torch.equal(each, torch.cat(own)) for each in of_addends)


def test_bfloat16_is_sent_as_such_and_summed_in_float32() -> None:
    """1 + 2^-8 + 2^-8: each addition alone would round to even, to 1."""

    def run(group: Group) -> tuple[Tensor, float]:
        rows = rows_of(group, [1, 1, 1])
        addend = torch.full((3, 4), 1.0 if group.rank == 0 else 2.0**-8, dtype=torch.bfloat16)
        return rows.sum_own(addend), rows.bytes_sent

    for total, sent in with_gloo(3, run):
        assert total.dtype == torch.bfloat16
        assert total.tolist() == [[1 + 2.0**-7] * 4]
        assert sent == 2 * 4 * 2, "a row to each of two others, two bytes a number"


def test_masks_of_a_part_are_the_wholes() -> None:
    keys = SampleKeys(5, 2, np.array([4, 11, 30]))
    whole = KeyedDropout(0.5, keys, 1001)(torch.ones(3, 20))
    assert torch.equal(KeyedDropout(0.5, keys, 1001, 13)(torch.ones(3, 7)), whole[:, 13:])
    assert 0 < float((whole == 0).sum()) < 60


# --- what a rank holds ---


@SIZES
def test_the_common_part_comes_first_and_the_own_part_is_its_block(ranks: int) -> None:
    def run(group: Group) -> tuple[Tensor, slice, list[slice]]:
        made = replica(group)
        head = made.model
        assert isinstance(head.first, nn.Module) and isinstance(head.second, nn.Module)
        place = made.parameters[made.common.stop :]
        assert head.first.weight.data_ptr() == place.data_ptr(), "used where it stands"
        return made.parameters.clone(), made.common, made.layer_slices

    model = seeded()
    one, two = model[6], model[9]
    units = np.array_split(np.arange(7), ranks)
    common = [each.detach().flatten() for layer in (model[0], model[2]) for each in layer.parameters()]
    common += [each.detach().flatten() for each in (two.bias, *model[11].parameters(), *model[12].parameters())]
    for rank, (flat, place, parts) in enumerate(with_gloo(ranks, run)):
        assert torch.equal(flat[place], torch.cat(common))
        own = (one.weight[units[rank]], one.bias[units[rank]], two.weight[:, units[rank]])
        assert torch.equal(flat[place.stop :], torch.cat([each.detach().flatten() for each in own]))
        assert [part.stop for part in parts].count(place.stop) == 1, "no part is half common"
        assert parts[-1].stop == len(flat)


@SIZES
def test_whole_and_part_of_are_inverse_in_the_sequential_order(ranks: int) -> None:
    counted = torch.arange(float(LENGTH))

    def run(group: Group) -> tuple[Tensor, Tensor, Tensor]:
        made = replica(group)
        with pytest.raises(ValueError, match=f"{LENGTH + 1} numbers for a model of {LENGTH} parameters"):
            made.part_of(torch.zeros(LENGTH + 1))
        return (
            made.whole(made.parameters),
            made.whole(made.part_of(counted)),
            made.part_of(made.whole(made.parameters)),
        )

    expected = whole_replica().parameters
    for start, back, part in with_gloo(ranks, run):
        assert torch.equal(start, expected)
        assert torch.equal(back, counted)
        assert len(part) < LENGTH


def test_frozen_layers_and_layers_without_bias() -> None:
    def model() -> nn.Module:
        made = nn.Sequential(
            *(nn.Conv2d(3, 5, 3), nn.Flatten(), nn.Linear(100, 7, bias=False), nn.ReLU()),
            *(nn.Linear(7, 6, bias=False), nn.ReLU(inplace=True), nn.Linear(6, 3)),
        )
        made[0].requires_grad_(False)
        return made

    def run(group: Group) -> tuple[Tensor, Tensor]:
        made = replica(group, model)
        return made.whole(made.parameters), summed(made, group, np.arange(5))[0]

    alone = whole_replica(model)
    alone.backward(batch(np.arange(5), 0), np.full(5, 0.2, np.float32))
    for start, gradient in with_gloo(2, run):
        assert torch.equal(start, alone.parameters)
        assert (gradient - alone.gradients).abs().max() < TOLERANCE


@SIZES
def test_frozen_units_are_put_together_under_the_sequential_names(ranks: int) -> None:
    """A head of which some is not trained: each rank has its units of that too, and a checkpoint the whole."""

    def model() -> nn.Module:
        made = nn.Sequential(
            *(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.Flatten()),
            *(nn.Linear(100, 7), nn.ReLU(), nn.Linear(7, 6), nn.ReLU(), nn.Linear(6, 3)),
        )
        for each in (made[0].bias, made[3].weight, made[5].weight, made[5].bias):
            each.requires_grad_(False)
        return made

    def run(group: Group) -> tuple[dict[str, Tensor], dict[str, Tensor], set[str]]:
        made = replica(group, model)
        made.start_alike(group)
        start = {name: each.clone() for name, each in made.whole_others().items()}
        made.take_others(made.others_of({name: each + 1 for name, each in start.items()}))
        return start, made.whole_others(), set(made.common_others())

    alone = whole_replica(model)
    for start, after, common in with_gloo(ranks, run):
        assert sorted(start) == ["0.bias", "1.num_batches_tracked", "3.weight", "5.bias", "5.weight"]
        assert common == {"0.bias", "1.num_batches_tracked", "5.bias"}
        for name, each in alone.others().items():
            assert torch.equal(start[name], each) and torch.equal(after[name], each + 1)


def test_a_use_case_starts_as_the_sequential_one() -> None:
    job = Job(model_parallel="head", launcher="processes", sync="allreduce", workers=2, seed=4)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        expected = TorchReplica(tiny.deep_net()).parameters

    def run(group: Group) -> Tensor:
        model = copy.deepcopy(built)
        made = split_head_replica(tiny.case(model=lambda: model), job, group)
        return made.whole(made.parameters)

    # Threads would draw from torch's one generator in each other's way; ranks with a head are processes.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        built = tiny.deep_net()
    assert all(torch.equal(each, expected) for each in with_gloo(2, run))


# --- gradients ---


def summed(made: SplitHeadReplica, group: Group, ids: np.ndarray, epoch: int = 1) -> tuple[Tensor, float]:
    """The whole model's gradient, common parts summed over ranks, and the loss, for a global batch of `ids`."""
    own = share_of(ids, group.rank, group.size)
    loss = torch.tensor(made.backward(batch(own, epoch), np.full(len(own), 1 / len(ids), np.float32)))
    gradients = made.gradients.clone()
    common = gradients[made.common].clone()
    group.allreduce(common)
    gradients[made.common] = common
    group.allreduce(loss)
    made.clear_gradients()
    return made.whole(gradients), float(loss)


@SIZES
@pytest.mark.parametrize("samples", [6, 5, 1])
@pytest.mark.parametrize("model", [tiny.net, tiny.deep_net])
def test_gradients_are_the_sequential_models(ranks: int, samples: int, model: Callable[[], nn.Module]) -> None:
    """Dropout is on, before, between and behind. Of 5 samples shares are uneven, of 1 some are empty."""
    ids = np.array([3, 20, 7, 31, 12, 8])[:samples]

    def run(group: Group) -> list[tuple[Tensor, float]]:
        made = replica(group, model)
        return [summed(made, group, ids), summed(made, group, ids, epoch=2)]

    alone = whole_replica(model)
    expected = []
    for epoch in (1, 2):
        alone.clear_gradients()
        loss = alone.backward(batch(ids, epoch), np.full(samples, 1 / samples, np.float32))
        expected.append((alone.gradients, loss))
    assert not torch.allclose(expected[0][0], expected[1][0]), "other masks in another epoch"
    for got in with_gloo(ranks, run):
        for (gradient, loss), (wanted, its_loss) in zip(got, expected, strict=True):
            assert (gradient - wanted).abs().max() < TOLERANCE
            assert loss == pytest.approx(its_loss, rel=1e-6)


def test_an_empty_share_leaves_running_statistics_alone() -> None:
    """And a layer that can't train on nothing does not have to."""

    def model() -> nn.Module:
        return nn.Sequential(
            *(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.Flatten(), nn.Linear(100, 7), nn.Linear(7, 6)),
            *(nn.BatchNorm1d(6), nn.Linear(6, 3)),
        )

    def all_on_rank_0(group: Group) -> tuple[Tensor, Tensor, Tensor]:
        made = replica(group, model)
        before, ids = made.buffers.clone(), np.arange(4 if group.rank == 0 else 0)
        made.backward(batch(ids, 0), np.full(len(ids), 0.25, np.float32))
        return made.gradients[made.common], made.gradients[made.common.stop :], made.buffers - before

    (trained, first, moved), (untrained, second, stayed) = with_gloo(2, all_on_rank_0)
    assert bool(trained.any()) and not bool(untrained.any())
    assert bool(first.any()) and bool(second.any()), "both have units for the images of rank 0"
    assert bool(moved.any()) and not bool(stayed.any())


def test_bfloat16_stays_near_float32() -> None:
    """With an empty share, whose rank must await numbers of the same precision."""

    def run(group: Group) -> Tensor:
        return summed(replica(group, precision="bfloat16"), group, np.array([3]))[0]

    alone = whole_replica(precision="bfloat16")
    alone.backward(batch(np.array([3]), 1), np.ones(1, np.float32))
    for gradient in with_gloo(2, run):
        assert (gradient - alone.gradients).abs().max() < 0.02 * alone.gradients.abs().max()


def test_predictions_are_the_whole_models_with_unequal_batches() -> None:
    def run(group: Group) -> Tensor:
        made = replica(group)
        return made.predict(batch(np.arange(3) if group.rank else np.arange(0), 0))

    nothing, some = with_gloo(2, run)
    assert nothing.shape == (0, 3)
    assert torch.allclose(some, whole_replica().predict(batch(np.arange(3), 0)), atol=1e-6)


def test_what_the_exchange_costs_is_counted() -> None:
    """Of 8 images on 2 ranks, each sends 4 rows of 48 and of 6 numbers, there and back."""

    def run(group: Group) -> SplitHeadReplica:
        made = replica(group)
        summed(made, group, np.arange(8))
        return made

    for made in with_gloo(2, run):
        assert made.bytes_sent == 2 * 4 * (48 + 6) * 4
        assert made.exchange_seconds == made.rows.seconds > 0
        assert made.forward_seconds > 0 and made.backward_seconds > 0, "without the exchanges in them"


# --- with a sync ---


def trained(group: Group, make: Callable[[], Sync], model: Callable[[], nn.Module]) -> tuple[Tensor, list[float]]:
    """The whole model after twelve steps, and the bytes of each exchange."""
    made: TorchReplica = whole_replica(model) if group.size == 1 else SplitHeadReplica(seeded(model), group)
    sync, sent = make(), []
    sync.attach(made, group)
    for _ in range(12):
        share = sync.next()
        assert share is not None
        made.backward(batch(share.sample_ids, share.epoch), share.weights, sync.layer_ready)
        sent.append(sync.step().bytes_sent)
    sync.close()
    return made.whole(made.parameters), sent


@pytest.mark.parametrize("bucket", ["whole", "layer", "100B"])
@pytest.mark.parametrize("overlap", [False, True], ids=["", "overlap"])
@SIZES
def test_training_reaches_the_sequential_parameters(ranks: int, bucket: str, overlap: bool) -> None:
    (expected, _), *_ = on_ranks(1, trained, lambda: LocalSync(PLAN, SGD), tiny.deep_net)
    make = functools.partial(AllreduceSync, PLAN, SGD, bucket, overlap)
    for parameters, sent in with_gloo(ranks, trained, make, tiny.deep_net):
        assert (parameters - expected).abs().max() < TOLERANCE
        # Convolutions (140 and 84), the second layer's bias and the rest: the blocks themselves stay.
        common = 140 + 84 + 6 + 35 + 18
        assert sent == pytest.approx([2 * (ranks - 1) / ranks * 4 * common] * 12)


def test_only_the_common_part_starts_as_rank_0s() -> None:
    def run(group: Group) -> tuple[Tensor, Tensor]:
        made = SplitHeadReplica(seeded(), group)
        made.parameters.fill_(float(group.rank + 1))
        sync = AllreduceSync(PLAN, SGD)
        sync.attach(made, group)
        sync.close()
        return made.parameters[made.common], made.parameters[made.common.stop :]

    for rank, (common, own) in enumerate(with_gloo(2, run)):
        assert common.unique().tolist() == [1.0]
        assert own.unique().tolist() == [rank + 1.0]


@pytest.mark.parametrize("name", [name for name in SYNCS if name != "allreduce"])
def test_other_syncs_refuse_it(name: str) -> None:
    job = Job(sync=name, policy="wait_for_all" if name == "parameter_server" else "none", workers=2)

    def run(group: Group) -> None:
        SYNCS[name].of(job, Plan(8, 8, 1), SGD).attach(SplitHeadReplica(seeded(), group), group)

    with pytest.raises(GroupError, match=r"needs the same parameters on every rank, and \d+ of this replica's \d+ are"):
        with_gloo(2, run)
