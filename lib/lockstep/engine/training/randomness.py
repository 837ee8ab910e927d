"""What a model's forward pass draws, and what it computes over a whole batch: found by watching its operators.

    nn.Dropout                              keyed by (seed, epoch, sample, layer) before: draws nothing here
    F.dropout, attention, LSTM, rand*, ...  draw from torch's generator, whatever module they stand in
    batch normalisation                     statistics of the images that one worker has at a time

Either makes the parameters depend on the number of workers, which a reader is told beforehand.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from lockstep.engine.data.loader import Batch

_OTHERS = ("numpy's", "Python's")
_USE = "use nn.Dropout, with the samples as first dimension"


class WatchedPass(TorchDispatchMode):
    """`with WatchedPass(model) as seen: model(images)`; then `draws` and `normalises` hold the modules' names.

    Not a list of classes: whichever operator moves torch's generator draws, in a model's own code too.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.draws: dict[str, str] = {}  # module -> the operator that drew first
        self.normalises: dict[str, str] = {}
        self.elsewhere: list[str] = []  # other generators that were drawn from
        self._names = {module: name or "the model" for name, module in model.named_modules()}
        self._inside: list[str] = []

    def __enter__(self) -> WatchedPass:
        self._hooks = [
            register_module_forward_pre_hook(self._entered),
            register_module_forward_hook(self._left, always_call=True),
        ]
        self._before = _other_states()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for hook in self._hooks:
            hook.remove()
        now = _other_states()
        self.elsewhere = [name for name, then, after in zip(_OTHERS, self._before, now, strict=True) if then != after]

    def __torch_dispatch__(
        self, operator: Any, types: Any, given: Sequence[Any] = (), options: Mapping[str, Any] | None = None
    ) -> Any:
        before = torch.random.get_rng_state()
        result = operator(*given, **(options or {}))
        own = (options or {}).get("generator") is not None
        where, name = self._inside[-1] if self._inside else "the model", operator.overloadpacket.__name__
        if own or not torch.equal(before, torch.random.get_rng_state()):
            self.draws.setdefault(where, name)
        if _over_the_batch(operator, given):
            self.normalises.setdefault(where, name)
        return result

    def _entered(self, module: nn.Module, _given: Any) -> None:
        if module in self._names:
            self._inside.append(self._names[module])

    def _left(self, module: nn.Module, _given: Any, _result: Any) -> None:
        if module in self._names and self._inside:
            self._inside.pop()

    @property
    def random(self) -> bool:
        """Whether the model draws what is not keyed by sample."""
        return bool(self.draws or self.elsewhere)

    @property
    def normalising(self) -> str:
        """The first module that normalises over a batch, and how many more do; empty if none does."""
        several = f" and {len(self.normalises) - 1} more" if len(self.normalises) > 1 else ""
        return f"{next(iter(self.normalises))}{several}" if self.normalises else ""

    def cautions(self, shared: bool) -> Iterator[str]:
        """What a reader should know. `shared`: whether a batch is divided among workers."""
        for module, operator in self.draws.items():
            yield (
                f"{module} draws random numbers in training ({operator}), which can't be keyed by sample: other "
                f"workers, other parameters, and with launcher='threads' other ones in every run; {_USE}"
            )
        for whose in self.elsewhere:
            yield f"the model draws from {whose} generator, which no seed of Lockstep decides; {_USE}, or torch's"
        if self.normalises and shared:
            yield (
                f"{self.normalising}: batch normalisation over each worker's own share of a batch, "
                "not the whole: other workers, other parameters; for the same ones give sync_batch_norm=True (for "
                "modules of nn.BatchNorm), or use nn.GroupNorm or nn.LayerNorm"
            )


def _over_the_batch(operator: Any, given: Sequence[Any]) -> bool:
    """Does this operator compute statistics over several samples? Instance normalisation folds them into channels."""
    if "batch_norm" not in operator.overloadpacket.__name__ or "backward" in operator.overloadpacket.__name__:
        return False
    names = [argument.name for argument in operator._schema.arguments]
    trains = "training" not in names or bool(given[names.index("training")])
    return trains and isinstance(given[0], Tensor) and given[0].shape[0] > 1


def _other_states() -> tuple[str, str]:
    return repr(np.random.get_state()), repr(random.getstate())


@contextmanager
def keeping_generators() -> Iterator[None]:
    """What is drawn within is as if it had not been drawn."""
    numbers, own = np.random.get_state(), random.getstate()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        np.random.set_state(numbers)
        random.setstate(own)


def seed_micro_batch(seed: int, batch: Batch) -> None:
    """Let what a model draws depend on the seed and on the samples of its micro-batch, so that a training that is
    repeated or resumed with the same workers is the same; ranks that are threads share one generator."""
    torch.manual_seed(zlib.crc32(np.array([seed, batch.epoch, *batch.sample_ids], np.int64).tobytes()))
