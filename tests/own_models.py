"""Models as readers bring them, for the advisor: good ones, and one for each thing that can be wrong."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn

TAKEN = nn.Sequential(nn.Linear(6, 3))
"""A model that was made already."""
NUMBER = 3


def perceptron(inputs: int = 6, hidden: int = 8, classes: int = 3) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def small_convolution(num_classes: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, num_classes))


class Words(nn.Module):
    """Token ids [n, places] to the scores of the next one [n, places, vocabulary], in a dictionary."""

    def __init__(self, vocab_size: int, width: int = 4) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(vocab_size, width), nn.Linear(width, vocab_size)

    def forward(self, ids: Tensor) -> dict[str, Tensor]:
        assert ids.dtype == torch.int64
        return {"logits": self.head(self.words(ids))}


class Both(nn.Module):
    """An image [n, 3, 8, 8] and token ids [n, 5]."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.words = nn.Linear(192, 4), nn.Embedding(11, 4)
        self.head = nn.Linear(8, 2)

    def forward(self, image: Tensor, ids: Tensor) -> Tensor:
        scores: Tensor = self.head(torch.cat([self.image(image.flatten(1)), self.words(ids).mean(1)], 1))
        return scores


class Shaky(nn.Linear):
    """Divides by zero at once."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / 0.0


class Talkative(nn.Linear):
    """Returns a word, and its output behind it."""

    def forward(self, x: Tensor) -> Any:  # type: ignore[override]
        return "a word", super().forward(x)


def shaky() -> nn.Module:
    return Shaky(6, 3)


def talkative() -> nn.Module:
    return Talkative(6, 3)


def huge() -> nn.Module:
    """4 TB of parameters."""
    return nn.Linear(1_000_000, 1_000_000)


def failing() -> nn.Module:
    raise RuntimeError("the weights are nowhere")


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(3))


def halves() -> nn.Module:
    return nn.Linear(6, 3).half()


def no_module() -> str:
    return "a model"


def mean_losses(output: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(output, labels)


class OwnLoss(nn.Module):
    """Needs to be told its power."""

    def __init__(self, power: int) -> None:
        super().__init__()
        self.power = power

    def forward(self, output: Tensor, labels: Tensor) -> Tensor:
        return (output.float().mean(1) - labels.float()) ** self.power


SMOOTH, SUMMED = nn.SmoothL1Loss(beta=0.5), nn.MSELoss(reduction="sum")


def own_adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


class OfLengths(torch.optim.SGD):
    """Steps by the length of a whole parameter, of which a slice knows nothing."""

    def step(self, closure: Any = None) -> Any:
        for each in self.param_groups[0]["params"]:
            each.grad = each.grad / each.grad.norm()
        return super().step(closure)


MADE = torch.optim.SGD(TAKEN.parameters(), lr=0.1)


def squares(output: Tensor, labels: Tensor) -> Tensor:
    return (output.float().mean(1) - labels.float()) ** 2


class Sleepy(nn.Linear):
    """Takes a minute for a batch of more than 8, as a worker's are."""

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > 8:
            time.sleep(60)
        return super().forward(x)


class Dozing(nn.Linear):
    """Takes nearly half a second for any batch, whatever the machine."""

    def __init__(self) -> None:
        super().__init__(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(0.45)
        return super().forward(x)


class Unused(nn.Linear):
    """With a parameter that no pass reads."""

    def __init__(self) -> None:
        super().__init__(6, 3)
        self.spare = nn.Parameter(torch.zeros(5))


def sleepy() -> nn.Module:
    return Sleepy(6, 3)


class FromTensorFlow:
    """Stands for a Keras model whose backend is TensorFlow."""

    __module__ = "keras.src.models"


def keras_model() -> FromTensorFlow:
    return FromTensorFlow()
