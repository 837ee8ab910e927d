"""What training a model needs of memory, counted on torch's `meta` device before anything is allocated.

    parameters + gradients + the optimizer's state + buffers + what autograd saves of one batch + an empty process
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from lockstep.advisor.calibration import CalibrationError
from lockstep.advisor.measuring.choices import logits_of
from lockstep.advisor.measuring.inputs import RandomSamples
from lockstep.engine.models.losses import Loss
from lockstep.measure.teams import free_memory

EMPTY_PROCESS_BYTES = 200 << 20
"""Of a worker that has imported torch, roughly: only a model that is far too large is refused by this."""


@dataclass(frozen=True)
class NeededMemory:
    """Bytes of one worker that trains by itself."""

    parameter_bytes: int
    gradient_bytes: int
    optimiser_bytes: int
    buffer_bytes: int
    saved_bytes: int | None  # for the backward pass of one batch; None: the model does not run without data

    @property
    def total(self) -> int:
        own = self.parameter_bytes + self.gradient_bytes + self.optimiser_bytes + self.buffer_bytes
        return own + (self.saved_bytes or 0) + EMPTY_PROCESS_BYTES

    def check(self, free_bytes: int | None, name: str, batch: int) -> None:
        """Raises CalibrationError if there is less memory than that. `free_bytes`: None: what is free here."""
        free = free_memory() if free_bytes is None else free_bytes
        if self.total <= free:
            return
        saved = "" if self.saved_bytes is None else f", {_gib(self.saved_bytes)} of activations for a batch of {batch}"
        raise CalibrationError(
            f"--model {name!r} does not fit: one worker needs about {_gib(self.total)} ({_gib(self.parameter_bytes)} "
            f"of parameters, {_gib(self.gradient_bytes)} of gradients, {_gib(self.optimiser_bytes)} of the "
            f"optimizer's state{saved}), and {_gib(free)} are free; give a smaller --batch or a smaller model, or "
            "calibrate on a machine with more memory"
        )


def needed_memory(
    factory: Callable[[], nn.Module], loss: Loss | None, state_bytes: float, samples: RandomSamples, batch: int
) -> NeededMemory | None:
    """Counted without allocating it; `state_bytes` of the optimizer for each parameter. None for a model that can't be
    made on the `meta` device."""
    try:
        with torch.device("meta"):
            model = factory()
    except CalibrationError:
        raise
    except Exception:  # it looks at values while it is made
        return None
    trained = [each for each in model.parameters() if each.requires_grad]
    return NeededMemory(
        parameter_bytes=_bytes(model.parameters()),
        gradient_bytes=_bytes(trained),
        optimiser_bytes=round(state_bytes * sum(each.numel() for each in trained)),
        buffer_bytes=_bytes(model.buffers()),
        saved_bytes=_saved_bytes(model, loss, samples, batch),
    )


def _saved_bytes(model: nn.Module, loss: Loss | None, samples: RandomSamples, batch: int) -> int | None:
    """What autograd keeps of a batch, every memory once, without parameters. None if the pass needs values."""
    own = {id(each) for each in (*model.parameters(), *model.buffers())}
    kept: dict[int, Tensor] = {}

    def note(tensor: Tensor) -> Tensor:
        # Storages on the meta device have no address, but each is an object of its own.
        base = tensor if tensor._base is None else tensor._base
        if id(base) not in own:
            kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    try:
        with torch.device("meta"), saved_tensors_hooks(note, lambda tensor: tensor):
            output = model.train()(torch.empty(batch, *samples.shape, device="meta"))
            found = logits_of(output)
            if loss is not None:
                loss(output, torch.zeros(batch, dtype=torch.int64, device="meta"))
            del output, found
    except Exception:
        return None
    return sum(each.untyped_storage().nbytes() for each in kept.values())


def largest_layer_bytes(model: nn.Module) -> int:
    """Bytes of the parameters that the module with the most of them holds itself."""
    return max((_bytes(module.parameters(recurse=False)) for module in model.modules()), default=0)


def _bytes(tensors: object) -> int:
    return sum(each.numel() * each.element_size() for each in tensors)  # type: ignore[attr-defined]


def _gib(count: int) -> str:
    return f"{count / 2**30:.3g} GiB"
