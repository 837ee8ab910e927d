"""Samples that are read when they are needed, and those that travel to workers: do they fit in memory?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

import lockstep
from here import Started, refuse_to_start
from lockstep.engine.job import JobError
from lockstep.engine.own.datasets import open_dataset
from own_forms import CLASSES, PAIR, ROWS, Pairs, linear, train_here


class Columns:
    """As HuggingFace's data sets: rows by number, columns by name, and a row is decoded when it is read."""

    def __init__(self, labels: Any = CLASSES, views: bool = False) -> None:
        self.column_names = ["image", "label"]
        self.labels, self.views, self.read = np.asarray(labels), views, set[int]()

    def __len__(self) -> int:
        return 24

    def __getitem__(self, asked: int | str) -> Any:
        if isinstance(asked, str):
            assert asked == "label", "all images would be decoded"
            found = self.labels.tolist()
            return np.asarray(found) if self.views else found
        self.read.add(asked)
        return {"image": ROWS[asked], "label": int(CLASSES[asked])}


@pytest.mark.parametrize("views", [False, True])
def test_labels_of_a_column_are_taken_without_decoding_the_samples(views: bool) -> None:
    data = Columns(views=views)
    opened = open_dataset(data)
    assert opened.labels.tolist() == CLASSES.tolist() and len(data.read) < 12
    assert np.array_equal(opened.load(np.array([23, 5]), 0, 0), ROWS[[23, 5]])
    assert {5, 23} <= data.read and len(data.read) < 14, "samples are read when they are asked for"


def test_a_column_that_says_otherwise_than_the_samples_is_not_taken() -> None:
    data = Columns(1 - CLASSES)
    assert open_dataset(data).labels.tolist() == CLASSES.tolist() and len(data.read) == 24


def test_rows_by_number_train_as_arrays_do() -> None:
    one, other = (train_here(linear(), data, lr=0.1) for data in (PAIR, Columns()))
    assert one.losses == other.losses and len(one.losses) == 6


class Holding(Dataset):
    """A data set that holds all its samples, which travel with it."""

    def __init__(self) -> None:
        self.rows = torch.zeros(50_000, 4)

    def __len__(self) -> int:
        return 24

    def __getitem__(self, place: int) -> Any:
        return self.rows[place], int(CLASSES[place])


LARGE = (np.zeros((50_000, 4), np.float32), np.arange(50_000) % 2)
"""781 KiB of samples."""


@pytest.mark.parametrize("data", [LARGE, Holding()], ids=["arrays", "a data set that holds them"])
@pytest.mark.parametrize("workers", [1, 2])
def test_samples_that_do_not_fit_are_refused_with_the_numbers(
    data: Any, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockstep.engine.launch.team.Team.start", refuse_to_start)
    monkeypatch.setattr("lockstep.engine.own.trials.free_memory", lambda: 5 << 20)
    if workers == 1:  # 3.8 of 5 MiB
        with pytest.raises(Started):
            lockstep.train(linear(), data, workers=1, batch_size=8)
        return
    told = (
        r"the samples are 78\d KiB, and each of 2 worker\(s\) unpacks a copy.* 6\.1\d* MiB with .*, and 5 MiB are free"
    )
    with pytest.raises(JobError, match=told):
        lockstep.train(linear(), data, workers=2, batch_size=8)


def test_samples_that_are_read_when_they_are_asked_for_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.engine.launch.team.Team.start", refuse_to_start)
    monkeypatch.setattr("lockstep.engine.own.trials.free_memory", lambda: 1 << 20)
    with pytest.raises(Started):
        lockstep.train(linear(), Pairs(), workers=2, batch_size=8)
