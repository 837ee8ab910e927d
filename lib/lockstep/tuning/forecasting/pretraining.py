"""The network as it is before it has seen a real curve: taught on `lockstep.tuning.prior`, once for each user.

It takes some 12 seconds of one core at first use, and is kept in the user's cache under a hash of the settings, of the
source that draws curves and learns them, and of torch's version; so another prior is another file.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from lockstep.engine.data.readable_cache import cache_folder
from lockstep.engine.files import WriteError, take_turn
from lockstep.engine.options import option, options_of
from lockstep.tuning import prior
from lockstep.tuning.forecasting import network
from lockstep.tuning.forecasting.storing import read_arrays, write_arrays

if TYPE_CHECKING:
    from lockstep.engine.forecasts.sequence_model import SequenceModel

LONG_STEPS = 500
"""Pre-training of so many updates says on stderr what it does."""
_here: dict[str, dict[str, Any]] = {}
"""By fingerprint, for a cache that can't be written: this process then keeps what it has learned."""


@dataclass(frozen=True)
class PriorSettings:
    """What is learned beforehand, and how."""

    steps: int = option(1500, "updates", least=1)
    batch: int = option(128, "fresh curves of an update", least=1)
    rate: float = option(0.01, "learning rate of Adam, which falls to 0", above=0)
    hidden: int = option(32, "units of the LSTM", least=1)
    least_epochs: int = option(3, "epochs of the shortest curves", least=2)
    most_epochs: int = option(60, "epochs of the longest curves", least=2)
    least_images: int = option(100, "validation images of the noisiest curves", least=1)
    most_images: int = option(10_000, "validation images of the smoothest curves", least=1)
    seed: int = option(0, "of curves and initial weights", least=0)

    def __post_init__(self) -> None:
        """Raises JobError for a value out of its bounds, and ValueError where a least is above its most."""
        for name, rule in options_of(type(self)).items():
            rule.check(getattr(self, name))
        for what in ("epochs", "images"):
            least, most = getattr(self, f"least_{what}"), getattr(self, f"most_{what}")
            if least > most:
                raise ValueError(f"least_{what}={least} is above most_{what}={most}; exchange them")

    def fingerprint(self) -> str:
        """Another one wherever the network would be another; for records, which say with which prior they were made."""
        import torch

        from lockstep.engine.forecasts import sequence_model

        digest = blake2b(f"{self} torch {torch.__version__}".encode(), digest_size=12)
        for module in (prior, network, sequence_model):
            digest.update(Path(str(module.__file__)).read_bytes())
        digest.update(Path(__file__).read_bytes())
        return digest.hexdigest()


def pretrained(settings: PriorSettings | None = None) -> SequenceModel:
    """The network that has learned the prior: from the user's cache, or taught now and put there.

    Several processes may ask at once: one teaches, the others wait. A damaged file is made anew; a cache that can't be
    written is no error. The same settings give the same network.
    """
    settings = settings or PriorSettings()
    key = settings.fingerprint()
    path = _file_of(key)
    if (model := _kept(key, path)) is not None:
        return model
    with _turn(path):
        # Asked again, because another process may have taught it while this one waited.
        if (model := _kept(key, path)) is not None:
            return model
        model = taught(settings)
        _keep(model, key, path)
    return model


def taught(settings: PriorSettings) -> SequenceModel:
    """Teaches a network on curves of the prior. torch's global generator is not touched.

    Every update takes fresh curves of one length, short ones as often as long ones (by logarithm). The end is the last
    epoch, to which the learning rate may have fallen, and in every fourth update any epoch before.
    """
    from lockstep.engine.forecasts.sequence_model import SequenceModel, SequenceOptions

    if settings.steps >= LONG_STEPS:
        print("teaching the forecaster of learning curves, once: some 12 seconds", file=sys.stderr, flush=True)
    model = SequenceModel(SequenceOptions(network.INPUTS, hidden=settings.hidden, rate=settings.rate), settings.seed)
    random = np.random.default_rng(settings.seed)
    first = [curve for _ in range(16) for curve in _curves(settings, random, cut=False)]
    network.scale_by(model, first)
    with network.one_thread():
        for step in range(settings.steps):
            network.learn_ends(model, _curves(settings, random, cut=step % 4 == 3), fade=1 - step / settings.steps)
    return model


def _curves(settings: PriorSettings, random: np.random.Generator, cut: bool) -> list[prior.Array]:
    epochs = round(_between(settings.least_epochs, settings.most_epochs, random))
    images = round(_between(settings.least_images, settings.most_images, random))
    curves = prior.draw_matrix(settings.batch, epochs, images, random)
    end = int(random.integers(2, epochs + 1)) if cut else epochs
    return list(curves[:, :end])


def _between(least: int, most: int, random: np.random.Generator) -> float:
    return float(np.exp(random.uniform(np.log(least), np.log(most))))


def _file_of(key: str) -> Path | None:
    """None for a user without a home."""
    with contextlib.suppress(RuntimeError):
        return cache_folder() / "curves" / f"{key}.npz"
    return None


def _turn(path: Path | None) -> IO[str] | contextlib.nullcontext[None]:
    """A turn to teach; without waiting where the cache can't be written."""
    if path is not None:
        with contextlib.suppress(OSError):
            return take_turn(path.parent)
    return contextlib.nullcontext()


def _kept(key: str, path: Path | None) -> SequenceModel | None:
    from lockstep.engine.forecasts.sequence_model import SequenceModel

    if key in _here:
        return SequenceModel.from_stored(_here[key], "this process")
    if path is not None:
        with contextlib.suppress(OSError, ValueError):  # no such file, or a damaged one
            return SequenceModel.from_stored(read_arrays(path), str(path))
    return None


def _keep(model: SequenceModel, key: str, path: Path | None) -> None:
    if path is not None:
        with contextlib.suppress(OSError, WriteError):
            write_arrays(path, model.stored())
            return
    _here[key] = model.stored()
