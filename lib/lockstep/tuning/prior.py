"""Synthetic learning curves of many kinds, to teach a forecaster before it has seen any real one.

    draw_curves(count=1000, epochs=30, images=400, seed=0)              # every curve of a study of its own
    draw_curves(count=20, epochs=30, images=400, seed=0, studies=1)     # 20 settings of one study

A **study** has a task: class shares, which say what a network gets that has learned nothing; the best score there is
(its distance to 1 is drawn by its logarithm, so near ties at 0.97 are as usual as ones at 0.7); how fast it is
learned, from a fifth of an epoch to a third of all epochs; whether the learning rate falls to the end; and what is
measured:

- *accuracy*: chance is the largest class share; every epoch has binomial noise of `images` validation images;
- *the geometric mean of the probability given to the right class*, exp(-cross-entropy): chance is exp(-entropy of the
  shares). The same images are asked each epoch and all count in part, so its noise is taken as SMOOTHER times that.

The **settings** of a study differ in kind, in how far below the best they end, and in speed. On its way a network also
wanders: noise that lasts some epochs, is larger while much is learned, costs as much as its own size, and fades where
the learning rate falls, so that scores rise at the end. Some settings have dips of a single epoch.

The ranges follow from what is known of training in general. They were set before any curve of this project's data was
looked at, and must not be changed after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.engine.options import JobError, at_least

Array = NDArray[np.float64]
MOST_CLASSES = 20
SMOOTHER = 0.3
"""How much of the binomial noise the geometric mean has."""


@dataclass(frozen=True)
class DrawnSettings:
    """What is drawn of each curve, [curves, 1] each; scores are in 0 to 1."""

    chance: Array  # of a network that has learned nothing
    other: Array  # of one that gives another wrong answer: always the same class, or too sure of itself
    start: Array  # after epoch 0
    top: Array  # what it would reach in the end
    speed: Array  # epochs
    wander: Array  # standard deviation of its noise
    lasting: Array  # which part of this noise is still there an epoch later
    falls: Array  # 1 where the learning rate falls to the last epoch, else 0
    accuracy: Array  # 1 where accuracy is measured, 0 for the geometric mean

    def take(self, rows: NDArray[np.intp]) -> DrawnSettings:
        """Those of some curves."""
        return DrawnSettings(*(getattr(self, field.name)[rows] for field in fields(self)))


Shape = Callable[[Array, DrawnSettings, np.random.Generator], Array]
"""(epochs 1, 2, ... [epochs], settings, random) -> scores without noise [curves, epochs]."""


def _power(epoch: Array, of: DrawnSettings, random: np.random.Generator) -> Array:
    exponent = _log_uniform(random, 0.4, 2.0, of.top.shape)
    return of.top - (of.top - of.start) * (1 + epoch / of.speed) ** -exponent


def _exponential(epoch: Array, of: DrawnSettings, random: np.random.Generator) -> Array:
    stretch = random.uniform(0.6, 1.2, of.top.shape)
    return of.top - (of.top - of.start) * np.exp(-((epoch / of.speed) ** stretch))


def _late(epoch: Array, of: DrawnSettings, random: np.random.Generator) -> Array:
    begins = random.uniform(0.05, 0.7, of.top.shape) * epoch[-1] + 0.5
    return of.chance + (of.top - of.chance) * -np.expm1(-np.maximum(epoch - begins, 0) / of.speed)


def _never(epoch: Array, of: DrawnSettings, random: np.random.Generator) -> Array:
    often = random.choice([0.0, 0.05, 0.3], size=of.top.shape)
    return np.where(random.random((len(often), len(epoch))) < often, of.other, of.chance)


def _peak(epoch: Array, of: DrawnSettings, random: np.random.Generator) -> Array:
    peak = of.speed * random.uniform(1, 4, of.top.shape)
    lost = (of.top - of.other) * random.uniform(0.02, 0.7, of.top.shape)
    takes = epoch[-1] * random.uniform(0.2, 1.0, of.top.shape)
    return _exponential(epoch, of, random) - lost * -np.expm1(-np.maximum(epoch - peak, 0) / takes)


def _collapse(epoch: Array, of: DrawnSettings, random: np.random.Generator) -> Array:
    rises = np.where(random.random(of.top.shape) < 0.5, _power(epoch, of, random), _exponential(epoch, of, random))
    falls = random.uniform(0.1, 1.0, of.top.shape) * epoch[-1]
    stays = np.where(random.random(of.top.shape) < 0.5, epoch[-1], random.uniform(1, 5, of.top.shape))
    lowest = np.where(random.random(of.top.shape) < 0.5, of.chance, of.other)
    return np.where((epoch > falls) & (epoch <= falls + stays), lowest, rises)


@dataclass(frozen=True)
class CurveKind:
    """How the curves of a kind run, and which share of all curves they are."""

    share: float
    shape: Shape
    wanders: float = 1.0  # times as much as usual


KINDS: Mapping[str, CurveKind] = {
    "power": CurveKind(0.33, _power),
    "exponential": CurveKind(0.33, _exponential),
    "late": CurveKind(0.05, _late),
    "never": CurveKind(0.06, _never, 0.1),
    "peak": CurveKind(0.18, _peak),
    "collapse": CurveKind(0.05, _collapse),
}
"""Saturating powers, exponentials, late starts, those that never learn, peak and decline, collapse to chance."""


def draw_curves(
    count: int, epochs: int, images: int, seed: int, *, studies: int | None = None, kinds: Sequence[str] = tuple(KINDS)
) -> list[Array]:
    """`count` learning curves, [epochs] each, scores in 0 to 1; the same arguments give the same curves.

    images: of the validation set. studies: curve i belongs to study i modulo `studies`; None: each to its own.
    kinds: names of KINDS, which keep their shares among each other. Raises JobError for an impossible number or kind.
    """
    return list(draw_matrix(count, epochs, images, np.random.default_rng(_seed(seed)), studies, kinds))


def draw_matrix(
    count: int,
    epochs: int,
    images: int,
    random: np.random.Generator,
    studies: int | None = None,
    kinds: Sequence[str] = tuple(KINDS),
) -> Array:
    """[count, epochs]: as `draw_curves`, from a generator that goes on."""
    for name, value in (("count", count), ("epochs", epochs), ("images", images)):
        at_least(name, value, 1)
    if studies is not None:
        at_least("studies", studies, 1)
    if not kinds or (unknown := [name for name in kinds if name not in KINDS]):
        wrong = f"{unknown[0]!r} does not exist" if kinds else "none is named"
        raise JobError(f"kinds={list(kinds)}: {wrong}; there are: {', '.join(KINDS)}")
    settings = _settings(count, epochs, studies or count, random)
    shares = np.array([KINDS[name].share for name in kinds])
    of_kind = random.choice(len(kinds), size=count, p=shares / shares.sum())
    epoch, clean = np.arange(1, epochs + 1, dtype=np.float64), np.empty((count, epochs))
    wander = settings.wander.copy()
    for number, name in enumerate(kinds):
        if (rows := np.flatnonzero(of_kind == number)).size:
            clean[rows] = KINDS[name].shape(epoch, settings.take(rows), random)
            wander[rows] *= KINDS[name].wanders
    return _measured(_trained(clean, epoch, replace(settings, wander=wander), random), settings, images, random)


def _settings(count: int, epochs: int, studies: int, random: np.random.Generator) -> DrawnSettings:
    """Of `count` curves, the study of each being its number modulo `studies`."""
    of = np.arange(count) % studies

    def per_study(values: NDArray[Any]) -> NDArray[Any]:
        return values.reshape(studies, 1)[of]

    accuracy = random.random(studies) < 0.5
    chance, wrong = _chances(accuracy, random)
    gap = per_study(_log_uniform(random, 0.005, 0.6, studies)) * np.exp(
        per_study(random.uniform(0.05, 0.8, studies)) * random.exponential(size=(count, 1))
    )
    speed = per_study(_log_uniform(random, 0.2, max(0.5, epochs / 3), studies)) * np.exp(
        per_study(random.uniform(0.2, 1.0, studies)) * random.standard_normal((count, 1))
    )
    wander = per_study(_log_uniform(random, 0.003, 0.08, studies)) * np.exp(0.5 * random.standard_normal((count, 1)))
    low = per_study(chance)
    top = low + (1 - low) * (1 - np.minimum(gap, 0.98))
    return DrawnSettings(
        chance=low,
        other=np.where(per_study(accuracy), per_study(wrong), low * random.uniform(0.2, 1.0, (count, 1))),
        start=low * random.uniform(0.7, 1.0, (count, 1)),
        top=top,
        speed=speed,
        wander=wander * np.maximum(top - low, 0.05),
        lasting=random.uniform(0, 0.7, (count, 1)),
        falls=per_study(random.random(studies) < 0.5).astype(np.float64),
        accuracy=per_study(accuracy).astype(np.float64),
    )


def _chances(accuracy: NDArray[np.bool_], random: np.random.Generator) -> tuple[Array, Array]:
    """(what a study's network gets that has learned nothing, and what one gets that names a wrong class), [studies]."""
    studies = len(accuracy)
    classes = np.rint(_log_uniform(random, 2, MOST_CLASSES, studies))
    weights = random.gamma(_log_uniform(random, 2, 100, (studies, 1)), size=(studies, MOST_CLASSES))
    weights[np.arange(MOST_CLASSES) >= classes[:, None]] = 0
    shares = weights / weights.sum(axis=1, keepdims=True)
    entropy = -(shares * np.log(np.where(shares > 0, shares, 1))).sum(axis=1)
    wrong = shares[np.arange(studies), random.integers(classes.astype(int))]
    return np.where(accuracy, shares.max(axis=1), np.exp(-entropy)), wrong


def _trained(clean: Array, epoch: Array, of: DrawnSettings, random: np.random.Generator) -> Array:
    """With the wandering of training, and dips."""
    white, noise = random.standard_normal(clean.shape), np.empty(clean.shape)
    fresh, before = np.sqrt(1 - of.lasting**2)[:, 0], white[:, 0]
    for step in range(clean.shape[1]):
        before = of.lasting[:, 0] * before + fresh * white[:, step]
        noise[:, step] = before
    fades = 1 - of.falls * 0.9 * epoch / epoch[-1]
    size = of.wander * fades * (1 + 2 * np.exp(-epoch / of.speed))
    wandered = clean + size * (noise - 1)
    unsteady = random.choice([0.0, 0.03, 0.15], p=[0.7, 0.2, 0.1], size=(len(clean), 1))
    dips = random.random(clean.shape) < unsteady * fades
    depth = random.random(clean.shape) * np.maximum(wandered - of.other, 0)
    return np.clip(np.where(dips, wandered - depth, wandered), 0, 1)


def _measured(true: Array, of: DrawnSettings, images: int, random: np.random.Generator) -> Array:
    """On `images` images."""
    counted = random.binomial(images, true) / images
    smooth = true + SMOOTHER * np.sqrt(true * (1 - true) / images) * random.standard_normal(true.shape)
    return np.clip(np.where(of.accuracy > 0, counted, smooth), 0, 1)


def _log_uniform(random: np.random.Generator, low: float, high: float, size: int | tuple[int, ...]) -> Array:
    return np.exp(random.uniform(np.log(low), np.log(high), size))


def _seed(seed: int) -> int:
    at_least("seed", seed, 0)
    return seed
