"""A small LSTM that forecasts the next values of a sequence, with a mean and a spread for each of them.

    x [steps, inputs] -> (x - shift) / scale --+-> LSTM(hidden) --+-> linear -> value 1, 2 ... steps ahead - value now
                                               |                  +-> linear -> log of Laplace's b, 1, 2 ... ahead
                                               +------------------+

It serves completion times here (`lockstep.engine.forecasts.lstm`) and learning curves. Input 0 is the value that is
forecast; others may say more about that step. The heads see the inputs too and begin at zero, so that a model that has
learned nothing forecasts the last value, and linear relations are learned at once.

Loss: |y - mean|, so that half of the outcomes lie on either side of the forecast, plus the negative log-likelihood of
Laplace's distribution around it. The likelihood teaches the head of the spread and nothing before it: at first its
gradient is large and has one sign, and so would push the LSTM's units, and with them all forecasts, to one side.

torch is imported by what runs, never by importing this module. Nothing here draws from torch's random generator, of
which a process has one.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lockstep.engine.options import JobError, option, options_of

if TYPE_CHECKING:
    import torch

Array = NDArray[np.float64]
Known = NDArray[np.bool_]
Hidden = tuple[NDArray[np.float32], NDArray[np.float32]]
"""The LSTM's h and c of some sequences, [sequences, hidden] each."""
LARGEST_GRADIENT = 1.0
"""The norm to which an update's gradient is cut."""
WARM_UP = 8
"""Updates over which the learning rate rises: Adam's first ones are as large as the rate, whatever the gradient."""
DECAYS = (0.9, 0.99)
"""Of Adam's two averages; the usual 0.999 takes a thousand updates to forget, and online there are some hundred."""


@dataclass(frozen=True)
class SequenceOptions:
    """The shape and the training of a `SequenceModel`. With six inputs there are 5 198 parameters."""

    inputs: int = option(1, "numbers per step of a sequence; the first one is the value that is forecast", least=1)
    horizon: int = option(1, "steps ahead that are forecast at once", least=1)
    hidden: int = option(32, "units of the LSTM", least=1)
    rate: float = option(0.02, "learning rate of Adam, after WARM_UP updates", above=0)
    steps: int = option(400, "updates of `fit`, over which the rate falls to 0", least=1)
    batch: int = option(32, "sequences of an update of `fit`", least=1)
    window: int = option(64, "steps of a sequence that an update of `fit` sees at most", least=2)

    def __post_init__(self) -> None:
        for name, rule in options_of(type(self)).items():
            rule.check(getattr(self, name))


class SequenceModel:
    """See the module. The same options, seed and calls give the same numbers."""

    def __init__(self, options: SequenceOptions | None = None, seed: int = 0) -> None:
        import torch

        self.options = options or SequenceOptions()
        self.shift, self.scale = np.zeros(self.options.inputs), np.ones(self.options.inputs)
        shape, random = self.options, np.random.default_rng(seed)
        # Made without memory first: a constructor that draws would change what all others in this process draw.
        self._lstm = torch.nn.LSTM(shape.inputs, shape.hidden, batch_first=True, device="meta").to_empty(device="cpu")
        both = shape.hidden + shape.inputs
        self._change = torch.nn.Linear(both, shape.horizon, device="meta").to_empty(device="cpu")
        self._log_b = torch.nn.Linear(both, shape.horizon, device="meta").to_empty(device="cpu")
        parts = {"lstm": self._lstm, "change": self._change, "log_b": self._log_b}
        named = (part.named_parameters(prefix=name) for name, part in parts.items())
        self._named: dict[str, torch.nn.Parameter] = dict(pair for pairs in named for pair in pairs)
        bound = 1 / math.sqrt(shape.hidden)
        with torch.no_grad():
            for name, weights in self._weights().items():
                drawn = random.uniform(-bound, bound, tuple(weights.shape)) if name.startswith("lstm") else 0.0
                weights.copy_(torch.as_tensor(drawn))
                if name == "lstm.bias_ih_l0":
                    weights[shape.hidden : 2 * shape.hidden] += 1  # the forget gate: remember at first
            self._log_b.bias.fill_(-1.0)
        self._updates = 0
        self._optimiser = torch.optim.Adam(self._weights().values(), lr=shape.rate, betas=DECAYS)

    @property
    def parameters(self) -> int:
        """How many numbers are learned."""
        return sum(weights.numel() for weights in self._weights().values())

    # Learning ---------------------------------------------------------------------------------------------------------

    def fit(self, sequences: Sequence[ArrayLike], seed: int) -> list[float]:
        """Learns from sequences of any length, [steps] or [steps, inputs] each; the loss of each update.

        Inputs are shifted and scaled by their mean and standard deviation over all sequences from then on. A sequence
        that holds NaN or infinity is cut before it, with a warning. Every update takes `batch` random windows.
        Raises ValueError where no sequence has two steps.
        """
        kept = [self._checked(sequence, f"sequence {number}") for number, sequence in enumerate(sequences)]
        usable = [sequence for sequence in kept if len(sequence) > 1]
        if not usable:
            raise ValueError(f"none of {len(kept)} sequences has two finite steps: there is nothing to learn from")
        every = np.concatenate(usable)
        self.shift, spread = every.mean(axis=0), every.std(axis=0)
        self.scale = np.where(spread > 0, spread, 1)
        random = np.random.default_rng(seed)
        steps = self.options.steps
        return [self.train(*self._windows(usable, random), fade=1 - step / steps) for step in range(steps)]

    def train(self, inputs: Array, targets: Array, known: Known, fade: float = 1.0) -> float:
        """One update; the loss per known target.

        inputs: [sequences, steps, inputs]; targets: [sequences, steps, horizon], the values 1, 2 ... steps after each
        step; known: of the same shape, which of them exist. Sequences begin with an empty memory. `fade`: what the
        learning rate is multiplied by.
        """
        import torch

        scaled = torch.from_numpy(((inputs - self.shift) / self.scale).astype(np.float32))
        wanted = torch.from_numpy(np.where(known, (targets - self.shift[0]) / self.scale[0], 0).astype(np.float32))
        with torch.enable_grad():
            out, _ = self._lstm(scaled)
            mean, log_b = self._read(out, scaled)
            miss = (wanted - mean).abs()
            likelihood = log_b + miss.detach() * torch.exp(-log_b)
            mask = torch.from_numpy(known)
            loss = ((miss + likelihood) * mask).sum() / mask.sum().clamp(min=1)
            for weights in self._weights().values():
                weights.grad = None
            loss.backward()
        torch.nn.utils.clip_grad_norm_(self._weights().values(), LARGEST_GRADIENT)
        self._updates += 1
        self._optimiser.param_groups[0]["lr"] = self.options.rate * fade * min(1.0, self._updates / WARM_UP)
        self._optimiser.step()
        return float(loss.detach())

    def _windows(self, sequences: Sequence[Array], random: np.random.Generator) -> tuple[Array, Array, Known]:
        """What `train` takes: random windows of random sequences."""
        window = min(self.options.window, max(map(len, sequences)))
        inputs = np.zeros((self.options.batch, window, self.options.inputs))
        targets = np.zeros((self.options.batch, window, self.options.horizon))
        known = np.zeros(targets.shape, bool)
        for row, number in enumerate(random.integers(len(sequences), size=self.options.batch)):
            sequence = sequences[number]
            start = int(random.integers(max(1, len(sequence) - window + 1)))
            part = sequence[start : start + window]
            inputs[row, : len(part)] = part
            for ahead in range(self.options.horizon):
                follows = sequence[start + 1 + ahead : start + 1 + ahead + len(part), 0]
                targets[row, : len(follows), ahead] = follows
                known[row, : len(follows), ahead] = True
        return inputs, targets, known

    # Forecasting ------------------------------------------------------------------------------------------------------

    def predict(self, prefix: ArrayLike) -> tuple[Array, Array]:
        """(mean, standard deviation), [horizon] each, of the values after `prefix`, [steps] or [steps, inputs].

        A prefix that holds NaN or infinity is cut before it, with a warning. Raises ValueError where nothing is left.
        """
        import torch

        values = self._checked(prefix, "the prefix")
        if not len(values):
            raise ValueError("the prefix has no finite step: there is nothing to forecast from")
        scaled = torch.from_numpy(((values - self.shift) / self.scale).astype(np.float32))[None]
        with torch.inference_mode():
            out, _ = self._lstm(scaled)
            mean, spread = self._unscaled(*self._read(out[:, -1:], scaled[:, -1:]))
        return mean[0, 0], spread[0, 0]

    def every_step(self, inputs: Array) -> tuple[Array, Array]:
        """After each step of whole sequences at once: (mean, standard deviation), [sequences, steps, horizon] each.

        inputs: [sequences, steps, inputs], finite. Sequences begin with an empty memory.
        """
        import torch

        scaled = torch.from_numpy(((inputs - self.shift) / self.scale).astype(np.float32))
        with torch.inference_mode():
            out, _ = self._lstm(scaled)
            return self._unscaled(*self._read(out, scaled))

    def step(self, inputs: Array, hidden: Hidden) -> tuple[Array, Array, Hidden]:
        """Goes on by one step: (mean, standard deviation), [sequences, horizon] each, and the memory after it.

        inputs: [sequences, inputs], of the step that was just seen.
        """
        import torch

        scaled = torch.from_numpy(((inputs - self.shift) / self.scale).astype(np.float32))[:, None]
        with torch.inference_mode():
            out, (h, c) = self._lstm(scaled, tuple(torch.from_numpy(part)[None] for part in hidden))
            mean, spread = self._unscaled(*self._read(out, scaled))
        return mean[:, 0], spread[:, 0], (h[0].numpy(), c[0].numpy())

    def _read(self, out: torch.Tensor, scaled: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(mean, log of Laplace's b), scaled, [sequences, steps, horizon]."""
        import torch

        both = torch.cat([out, scaled], dim=-1)
        return scaled[..., :1] + self._change(both), self._log_b(both.detach()).clamp(-8, 8)

    def _unscaled(self, mean: torch.Tensor, log_b: torch.Tensor) -> tuple[Array, Array]:
        exact = mean.numpy().astype(np.float64), np.exp(log_b.numpy().astype(np.float64))
        return exact[0] * self.scale[0] + self.shift[0], math.sqrt(2) * exact[1] * self.scale[0]

    def _checked(self, sequence: ArrayLike, what: str) -> Array:
        """[steps, inputs], up to what is not finite."""
        values = np.asarray(sequence, np.float64)
        values = values[:, None] if values.ndim == 1 else values
        if values.ndim != 2 or values.shape[1] != self.options.inputs:
            raise ValueError(f"{what} has the shape {np.shape(sequence)}; give [steps, {self.options.inputs}]")
        bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
        if bad.size:
            warnings.warn(f"{what} is cut at step {bad[0]} of {len(values)}, which is not finite", stacklevel=3)
            return values[: bad[0]]
        return values

    # Keeping ----------------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, Any]:
        """All that was learned, by name, with what Adam remembers: copies."""
        arrays: dict[str, Any] = {"shift": self.shift.copy(), "scale": self.scale.copy()}
        arrays["updates"] = np.array(self._updates)
        for name, weights in self._weights().items():
            arrays[name] = weights.detach().numpy().copy()
            for moment, value in self._optimiser.state.get(weights, {}).items():
                arrays[f"{name}.{moment}"] = value.numpy().copy()
        return arrays

    def restore(self, arrays: Mapping[str, NDArray]) -> None:
        """Goes on from `arrays()` of a model of the same shape.

        Raises ValueError for arrays of another shape.
        """
        import torch

        for name, weights in self._weights().items():
            if name not in arrays or np.shape(arrays[name]) != tuple(weights.shape):
                found = np.shape(arrays[name]) if name in arrays else "missing"
                raise ValueError(f"these are weights of another model: {name} is {found}, not {tuple(weights.shape)}")
        self.shift, self.scale = (np.array(arrays[name], np.float64) for name in ("shift", "scale"))
        self._updates = int(arrays["updates"])
        self._optimiser.state.clear()
        for name, weights in self._weights().items():
            with torch.no_grad():
                weights.copy_(torch.from_numpy(np.array(arrays[name])))
            moments = {moment: arrays.get(f"{name}.{moment}") for moment in ("step", "exp_avg", "exp_avg_sq")}
            if all(value is not None for value in moments.values()):
                self._optimiser.state[weights] = {key: torch.from_numpy(np.array(v)) for key, v in moments.items()}

    def stored(self) -> dict[str, Any]:
        """Options and `arrays()`, by name: what a file holds."""
        return {f"option.{name}": np.array(value) for name, value in asdict(self.options).items()} | self.arrays()

    @classmethod
    def from_stored(cls, arrays: Mapping[str, NDArray], place: str) -> SequenceModel:
        """The model of `stored()`, read from `place`. Raises ValueError for something else."""
        try:
            chosen = {name: arrays[f"option.{name}"].item() for name in options_of(SequenceOptions)}
            model = cls(SequenceOptions(**chosen))
        except (KeyError, JobError) as error:
            raise ValueError(f"{place} holds no sequence model: {error}") from error
        model.restore(arrays)
        return model

    def save(self, path: Path) -> None:
        """Writes options and weights to a `.npz` file; no pickle."""
        with Path(path).open("wb") as file:
            np.savez(file, **self.stored())

    @classmethod
    def read(cls, path: Path) -> SequenceModel:
        """The model that `save` wrote. Raises ValueError for a file of something else."""
        with np.load(path, allow_pickle=False) as stored:
            return cls.from_stored({name: stored[name] for name in stored.files}, str(path))

    def _weights(self) -> dict[str, torch.nn.Parameter]:
        return self._named
