"""What `lockstep.train` refuses before any worker starts, with what is wrong and how to mend it. The rows are what a
newcomer tried."""

from __future__ import annotations

import functools
import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam
from torch.utils.data import DataLoader, WeightedRandomSampler

import lockstep
from here import refuse_to_start
from lockstep.engine.data.errors import DataError
from lockstep.engine.job import JobError
from own_forms import CLASSES, PAIR, REACHED, ROWS, SPOILT, TOKENS, Pairs, Ragged, Stream, Wrapped, linear, tensors

functional = nn.functional


def two_groups() -> tuple[nn.Module, Any]:
    model = nn.Linear(4, 2)
    return model, SGD([{"params": [model.weight]}, {"params": [model.bias], "lr": 0.1}], lr=0.5)


def with_scheduler(model: nn.Module) -> Any:
    found = SGD(model.parameters(), lr=0.5)
    torch.optim.lr_scheduler.StepLR(found, 2)
    return found


def batch_mean(output: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(output, labels)


def no_gradient(output: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(output, labels, reduction="none").detach()


MODEL = nn.Linear(4, 2)
WITH_LOCK = functools.partial(lambda lock, x, y: (x, y), threading.Lock())
LOCKED = functools.partial(lambda lock: nn.Linear(4, 2), threading.Lock())
ONE_SIDED = WeightedRandomSampler([1.0] * 24, 24)


@pytest.mark.parametrize(
    ("model", "data", "options", "error", "message"),
    [
        # the model
        ("resnet18", PAIR, {}, JobError, "model='resnet18' is no model; give an nn.Module, or a function"),
        (nn.Linear, PAIR, {}, JobError, "model() fails with TypeError: Linear.__init__() missing 2 required"),
        (lambda: 3, PAIR, {}, JobError, "model() gives a int; let it return an nn.Module"),
        (nn.DataParallel(MODEL), PAIR, {}, JobError, "wrapped in DataParallel, and Lockstep distributes it; give mo"),
        (linear(inputs=5), PAIR, {}, JobError, "(float32 [2, 4]) fails with RuntimeError: mat1 and mat2 shapes"),
        (linear(), (ROWS, np.arange(24) % 3), {}, JobError, "the model has 2 outputs for 3 classes"),
        (linear(1), (ROWS, np.arange(24) % 3), {"loss": "binary_cross_entropy"}, JobError, "tells 2 classes apart"),
        (linear(inputs=3), (TOKENS, CLASSES), {}, JobError, "whole numbers are taken for token ids: for numbers give"),
        (functools.partial(Wrapped, lambda x: {"scores": x}), PAIR, {}, JobError, "no logits in a dict of scores"),
        # the data
        (linear(), ROWS, {}, DataError, "data is one ndarray of shape [24, 4], without labels; give both: (images"),
        (linear(), torch.from_numpy(ROWS), {}, DataError, "data is one Tensor of shape [24, 4], without labels"),
        (linear(), (ROWS, CLASSES, CLASSES), {}, DataError, "data is a tuple of 3; give two: (images, labels)"),
        (linear(), None, {}, DataError, "data is None; give (images, labels), a data set of torch, or a folder"),
        (linear(), iter([1]), {}, DataError, "which has no samples by number that workers could share"),
        (linear(), Stream(), {}, DataError, "data is a Stream, which has no samples by number"),
        (linear(), DataLoader(Stream()), {}, DataError, "data is a Stream, which has no samples by number"),
        (linear(), [], {}, DataError, "data, a list, is empty"),
        (linear(), Pairs(make=lambda x, y: (x, y, y)), {}, DataError, "sample 0 of the data set is a tuple of 3; give"),
        (linear(), Pairs(make=lambda x, y: ("a photo", y)), {}, DataError, "input of sample 0 of the data set is a s"),
        (linear(), Ragged(), {"epochs": 3}, DataError, "sample 9 of the data set has shape [5], sample 0 [4]"),
        (linear(), {"train": tensors(), "test": tensors()}, {}, DataError, "give data=that['train'], test=that['test'"),
        (linear(), {"input_ids": TOKENS, "attention_mask": TOKENS, "labels": CLASSES}, {}, DataError, "one input"),
        (linear(), {"rows": ROWS, "labels": CLASSES}, {}, DataError, "is a dict of rows, labels; give one of images"),
        (linear(), DataLoader(Pairs(), collate_fn=len), {}, DataError, "with collate_fn=len, which Lockstep would not"),
        (linear(), DataLoader(Pairs(), sampler=ONE_SIDED), {}, DataError, "with a WeightedRandomSampler of its own"),
        (linear(), DataLoader(Pairs(), batch_size=None), {}, DataError, "a DataLoader that makes its batches itself"),
        (linear(), (SPOILT, CLASSES), {}, DataError, "training images: sample 17 is nan at [3]; remove it or mend it"),
        (linear(), PAIR, {"test": (SPOILT, CLASSES)}, DataError, "test images: sample 17 is nan at [3]"),
        (linear(1), (ROWS, SPOILT[:, 3]), {"loss": "mse"}, DataError, "training labels: sample 17 is nan"),
        (linear(), Pairs(lambda: float("nan")), {}, JobError, "first pass is not finite: images: sample 0 is nan at"),
        (linear(), PAIR, {"test": (ROWS, REACHED)}, DataError, "the training data are float32 inputs with classes as"),
        (linear(), (ROWS, CLASSES.astype(str)), {}, DataError, "labels has type <U21; give whole numbers from 0 for"),
        # the loss
        (linear(), PAIR, {"loss": batch_mean}, JobError, "the loss gives a tensor [] for 2 images"),
        (linear(), PAIR, {"loss": "mee"}, JobError, "loss='mee' does not exist; there are: cross_entropy, binary_"),
        (linear(), PAIR, {"loss": nn.MSELoss}, JobError, "loss=MSELoss is a class; give an object: MSELoss()"),
        (linear(), PAIR, {"loss": 3}, JobError, "loss=3 can't be called"),
        (linear(), PAIR, {"loss": functools.partial(functional.mse_loss, reduction="sum")}, JobError, "one value per"),
        (linear(), PAIR, {"loss": no_gradient}, JobError, "a first backward pass fails with RuntimeError"),
        (linear(1), (ROWS, REACHED[:, 0]), {}, JobError, "the labels are floats; for classes give whole numbers"),
        (linear(3), (ROWS, REACHED), {"loss": "mse"}, JobError, "output is [2, 3] and the labels are [2, 2]; this los"),
        # the optimiser
        (linear(), PAIR, {"optimizer": SGD, "optimiser": SGD}, JobError, "optimiser and optimizer mean the same"),
        (linear(), PAIR, {"optimizer": torch.optim.LBFGS}, JobError, "LBFGS.step() missing 1 required positional arg"),
        (linear(), PAIR, {"optimizer": torch.optim.Adafactor}, JobError, "Adafactor steps on a part of a parameter"),
        (linear(), PAIR, {"optimizer": "adam"}, JobError, "optimiser='adam' can't be called; give a function of"),
        (linear(), PAIR, {"optimizer": lambda tensors: 3}, JobError, "optimiser(parameters) gives a int"),
        (linear(), PAIR, {"optimizer": SGD(MODEL.parameters())}, JobError, "of another model than the one that the f"),
        (MODEL, PAIR, {"optimizer": Adam(nn.Linear(4, 2).parameters())}, JobError, "is not over all parameters of th"),
        (two_groups()[0], PAIR, {"optimizer": two_groups()[1]}, JobError, "has 2 groups of parameters"),
        (MODEL, PAIR, {"optimizer": with_scheduler(MODEL)}, JobError, "has a learning rate scheduler"),
        (linear(), PAIR, {"lr": -1}, JobError, "lr=-1 is not possible"),
        (linear(), PAIR, {"lr": 0.1, "optimizer": lambda tensors: SGD(tensors)}, JobError, "an optimizer that takes n"),
        # the rest
        (linear(), PAIR, {"batch_size": 8, "global_batch_size": 8}, JobError, "global_batch_size and batch_size mean"),
        (linear(), PAIR, {"batch_size": 0}, JobError, "global_batch_size=0 is not possible"),
        (linear(), PAIR, {"device": "mps"}, JobError, "device='mps' can't be trained on; there are: cpu, cuda"),
        (linear(), PAIR, {"device": "cuda"}, JobError, "torch finds no GPU here (torch.cuda.is_available()); give dev"),
        (linear(), PAIR, {"device": "cuda:1"}, JobError, "give 'cuda': worker r uses GPU r"),
        (linear(1), (ROWS, REACHED[:, 0]), {"loss": "mse", "class_weights": "balanced"}, JobError, "that are no class"),
        (linear(1), (ROWS, REACHED[:, 0]), {"loss": "mse", "model_parallel": "pipeline"}, JobError, "float32 inputs"),
        (linear(), Pairs(make=WITH_LOCK), {}, JobError, "the data set can't be sent to workers (TypeError: can"),
        (lambda: LOCKED(), PAIR, {}, JobError, "the model can't be sent to workers (TypeError: cannot pickle"),
    ],
)
def test_what_is_refused_before_any_worker_starts(
    model: Any, data: Any, options: dict[str, Any], error: type[Exception], message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("lockstep.engine.launch.team.Team.start", refuse_to_start)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    before = torch.random.get_rng_state()
    with pytest.raises(error) as caught:
        lockstep.train(model, data, **options)
    assert message in str(caught.value)
    assert torch.equal(torch.random.get_rng_state(), before)
