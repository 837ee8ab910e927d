"""What a reviewer of `lockstep.train` saw come out wrong without a word: losses, scores and data. Each test is named
after what was seen."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import AdamW
from torch.utils.data import DataLoader, RandomSampler

from lockstep.engine.data.errors import DataError
from lockstep.engine.data.sampling import epoch_order
from lockstep.engine.job import JobError
from lockstep.engine.own.datasets import open_dataset
from lockstep.engine.own.losses import read_loss
from own_forms import CLASSES, PAIR, REACHED, ROWS, SEVERAL, Pairs, linear, tensors
from own_forms import train_here as train

functional = nn.functional


def plain(model: nn.Module, labels: Any, loss: Any, optimizer: Any) -> nn.Module:
    """The loop that everybody writes, over the same batches."""
    for epoch in range(2):
        order = epoch_order(0, epoch, len(ROWS))
        for ids in (order[place : place + 10] for place in range(0, len(ROWS), 10)):
            optimizer.zero_grad()
            loss(model(torch.from_numpy(ROWS[ids])), torch.from_numpy(labels[ids])).backward()
            optimizer.step()
    return model


def seeded(*layers: Any) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(*(layer() for layer in layers))


# --- the same as a loop of torch ---


@pytest.mark.parametrize(
    ("outputs", "labels", "loss"),
    [(2, REACHED, nn.MSELoss()), (2, SEVERAL.astype(np.float32), nn.BCEWithLogitsLoss()),
     (2, CLASSES, nn.CrossEntropyLoss(label_smoothing=0.1))],
)  # fmt: skip
def test_parameters_are_those_of_a_loop_of_torch(outputs: int, labels: Any, loss: Any) -> None:
    start = functools.partial(seeded, linear(8), nn.ReLU, linear(outputs, 8))
    given = start()
    got = train(given, (ROWS, labels), loss=loss, optimizer=AdamW(given.parameters(), lr=0.05), test=(ROWS, labels))
    other = start()
    wanted = plain(other, labels, loss, AdamW(other.parameters(), lr=0.05))
    for one, two in zip(got.model.parameters(), wanted.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)
    if labels is CLASSES:
        with torch.no_grad():
            guesses = got.model(torch.from_numpy(ROWS)).argmax(1).numpy()
        assert got.scores["test_accuracy"] == pytest.approx((guesses == CLASSES).mean())


# --- losses and scores ---


def test_probabilities_were_scored_as_logits() -> None:
    """A sigmoid and BCELoss: every probability above 0 counted as the second class."""
    model = functools.partial(seeded, linear(1), nn.Sigmoid)
    got = train(model, loss=nn.BCELoss(), test=PAIR, epochs=30, lr=0.1)
    with torch.no_grad():
        right = (got.model(torch.from_numpy(ROWS)).flatten() > 0.5).numpy() == CLASSES
    assert got.scores["test_accuracy"] == pytest.approx(right.mean()) and right.mean() > 0.9


def test_outputs_with_channels_last_were_reshaped_to_labels_with_channels_first() -> None:
    with pytest.raises(ValueError, match=r"output is \[2, 3, 4\] and the labels are \[2, 4, 3\]"):
        read_loss("mse")(torch.zeros(2, 3, 4), torch.zeros(2, 4, 3))
    assert read_loss("mse")(torch.ones(2, 3, 1), torch.zeros(2, 1, 3)).tolist() == [1, 1]


def test_whole_numbers_to_reach_were_taken_for_classes() -> None:
    reached = np.round(3 * ROWS[:, 0]).astype(np.int64)  # some are negative
    got = train(linear(1), (ROWS, reached), loss="mse", test=(ROWS, (reached > 0).astype(int)))
    assert set(got.scores) == {"test_loss", "test_mean_squared_error", "test_mean_absolute_error", "test_r2"}
    listed = [(row, int(number)) for row, number in zip(ROWS, reached, strict=True)]
    assert train(linear(1), listed, loss="mse").losses == pytest.approx(got.losses)


@pytest.mark.parametrize("labels", [REACHED, (ROWS[:, :2] > -9).astype(np.float32)])
def test_a_forgotten_loss_took_numbers_for_probabilities(labels: Any) -> None:
    with pytest.raises(DataError, match=r"training label of sample 0 .*'binary_cross_entropy' for .* loss='mse'"):
        train(linear(2), (ROWS, labels))
    assert np.isfinite(train(linear(2), (ROWS, np.eye(2)[CLASSES])).losses).all(), "one-hot rows are probabilities"


def test_whole_numbers_for_several_labels_need_another_loss() -> None:
    with pytest.raises(JobError, match=r"for several labels of 0 and 1 give loss='binary_cross_entropy'"):
        train(linear(2), (ROWS, SEVERAL))


def test_the_batch_mean_of_a_divergence_was_divided_by_the_classes_too() -> None:
    loss, logs = nn.KLDivLoss(reduction="batchmean"), torch.randn(2, 3).log_softmax(1)
    wanted = torch.tensor([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]])
    torch.testing.assert_close(read_loss(loss)(logs, wanted).mean(), loss(logs, wanted))


def test_places_that_are_ignored_counted_in_the_mean() -> None:
    output, labels = torch.randn(2, 5, 4), torch.tensor([[1, -100, -100, -100], [2, 3, 1, 0]])
    each = [functional.cross_entropy(output[:1], labels[:1]), functional.cross_entropy(output[1:], labels[1:])]
    read: Any = read_loss(nn.CrossEntropyLoss())
    torch.testing.assert_close(read(output, labels), torch.stack(each))
    assert "ignore_index=-100 occurs in the training labels" in read.check_labels(labels.numpy(), "training")


class Focal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.reduction = "mean"

    def forward(self, output: Tensor, labels: Tensor) -> Tensor:
        losses = functional.cross_entropy(output, labels, reduction="none")
        return losses if self.reduction == "none" else losses.mean()


def test_losses_of_ones_own_with_a_reduction_were_refused() -> None:
    class Own(nn.CrossEntropyLoss):
        pass

    output, labels = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    wanted = functional.cross_entropy(output, labels, reduction="none")
    for loss in (Focal(), Own()):
        torch.testing.assert_close(read_loss(loss)(output, labels), wanted)
    with pytest.raises(JobError, match=r"MSELoss\(reduction='sum'\) gives one value per batch"):
        read_loss(nn.MSELoss(reduction="sum"))


# --- data ---


class Listed(Pairs):
    """Its `targets` are not what its samples say, but for the first and the last."""

    targets = np.where(np.arange(24) % 23, 1 - CLASSES, CLASSES).tolist()


def test_listed_labels_were_compared_at_two_places_only() -> None:
    assert open_dataset(Listed()).labels.tolist() == CLASSES.tolist()


def test_a_label_that_changes_is_noticed_when_its_sample_is_read() -> None:
    data = open_dataset(Pairs())
    data.labels[5] = 1 - data.labels[5]
    with pytest.raises(DataError, match="the label of sample 5 of the data set is"):
        data.load(np.arange(24), 0, 0)


def test_floats_after_whole_numbers_were_cut_off() -> None:
    data = open_dataset([([1, 2], 0), ([0.5, 1.7], 1)])
    with pytest.raises(DataError, match="sample 1 of the data set is float64, and sample 0 int64"):
        data.load(np.arange(2), 0, 0)


def test_tokens_of_uint16_are_whole_numbers() -> None:
    assert open_dataset([(np.array([1, 700], np.uint16), 0), (np.array([3, 4], np.uint16), 1)]).dtype == np.int64


def test_a_sampler_of_some_samples_was_not_followed() -> None:
    loader = DataLoader(tensors(), sampler=RandomSampler(tensors(), num_samples=20))
    with pytest.raises(DataError, match=r"with a RandomSampler\(num_samples=20\), and Lockstep trains on each"):
        train(linear(), loader)


def test_samples_that_are_drawn_late_or_elsewhere_are_noticed() -> None:
    class Late(Pairs):
        def __getitem__(self, place: int) -> Any:
            row, label = super().__getitem__(place)
            return row + (torch.randn(4) if place > 9 else 0), label

    dice = np.random.default_rng(0)
    late, own = open_dataset(Late()), open_dataset(Pairs(lambda: torch.from_numpy(dice.normal(size=4)).float()))
    assert late.draws and late.seeded and own.draws and not own.seeded
    assert not open_dataset(Pairs()).draws


def test_a_sample_that_fails_is_named() -> None:
    def gone(row: Tensor, label: int) -> Any:
        if torch.equal(row, torch.from_numpy(ROWS[7])):
            raise FileNotFoundError("gone.png")
        return row, label

    with pytest.raises(DataError, match=r"sample 7 of the data set can't be read \(FileNotFoundError: gone.png\)"):
        train(linear(), Pairs(make=gone))


def test_a_model_that_can_not_work_is_refused_before_all_samples_are_read() -> None:
    read: list[int] = []
    with pytest.raises(JobError, match="a first pass of 2 training images"):
        train(linear(inputs=7), Pairs(make=lambda x, y: (read.append(y), (x, y))[1]))
    assert len(read) < 12


def test_test_data_of_one_class_are_scored_and_unknown_classes_refused() -> None:
    ones = CLASSES == 0
    assert 0 <= train(linear(), test=(ROWS[ones], CLASSES[ones])).scores["test_accuracy"] <= 1
    for labels, message in ((CLASSES + 1, "the test data: label 2 has no name"), (CLASSES[:0], "the test data: ")):
        with pytest.raises(DataError, match=message):
            train(linear(), test=(ROWS[: len(labels)], labels))
