"""What training a model needs of memory: counted on torch's `meta` device before anything is allocated, except for
what autograd saves, which two samples tell.

    parameters + gradients + the optimizer's state + buffers + what autograd saves of one batch + an empty process
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from lockstep.advisor.advice import Advised
from lockstep.advisor.calibration import CalibrationError
from lockstep.advisor.memory import without_room
from lockstep.engine.cgroups import free_memory
from lockstep.engine.units import bytes_text

EMPTY_PROCESS_BYTES = 200 << 20
"""Of a worker that has imported torch, roughly: only a model that is far too large is refused by this."""


class TooLarge(CalibrationError):
    """One worker has no memory for the model with so many samples."""

    def __init__(self, message: str, needed: NeededMemory, free_bytes: int, batch: int) -> None:
        super().__init__(message)
        self.needed, self.free_bytes, self.batch = needed, free_bytes, batch

    @property
    def fitting_batch(self) -> int:
        """The samples that there is memory for; 0: none, or their memory is not known yet, for the model itself is too
        large."""
        saved = self.needed.saved_bytes
        if saved is None:
            return 0
        left = self.free_bytes - (self.needed.total - saved)
        return max(0, int(left * self.batch / saved)) if saved else 0

    def advised(self, name: str, batch: int) -> Advised:
        """The answer for it with this global batch: it does not fit, and what dividing its state would need."""
        needed, each = self.needed, (self.needed.saved_bytes or 0) / self.batch

        def rest(images: int) -> float:
            return needed.buffer_bytes + EMPTY_PROCESS_BYTES + each * images

        state = needed.parameter_bytes + needed.gradient_bytes + needed.optimiser_bytes
        return without_room(
            name, batch, self.free_bytes, state, needed.optimiser_bytes, rest, needed.largest_layer_bytes
        )


@dataclass(frozen=True)
class NeededMemory:
    """Bytes of one worker that trains by itself."""

    parameter_bytes: int
    gradient_bytes: int
    optimiser_bytes: int
    buffer_bytes: int
    saved_bytes: int | None = None  # by autograd, of one batch; None: not known yet
    largest_layer_bytes: int = 0  # of parameters, which full sharding gathers at once

    @property
    def total(self) -> int:
        own = self.parameter_bytes + self.gradient_bytes + self.optimiser_bytes + self.buffer_bytes
        return own + (self.saved_bytes or 0) + EMPTY_PROCESS_BYTES

    def check(self, free_bytes: int | None, name: str, batch: int) -> None:
        """Raises TooLarge if there is less memory than that. `free_bytes`: None: what is free here."""
        free = free_memory() if free_bytes is None else free_bytes
        if self.total <= free:
            return
        own = (self.total, self.parameter_bytes, self.gradient_bytes, self.optimiser_bytes, self.saved_bytes or 0, free)
        total, parameters, gradients, state, activations, room = map(bytes_text, own)
        saved = "" if self.saved_bytes is None else f", {activations} of activations for a batch of {batch}"
        raise TooLarge(
            f"--model {name!r} does not fit: one worker needs about {total} ({parameters} of parameters, {gradients} "
            f"of gradients, {state} of the optimizer's state{saved}), and {room} are free; give a smaller --batch or a "
            "smaller model, or calibrate on a machine with more memory",
            self, free, batch,
        )  # fmt: skip


def needed_memory(factory: Callable[[], nn.Module], state_bytes: float) -> NeededMemory | None:
    """Counted without allocating it, `saved_bytes` not yet; `state_bytes` of the optimizer for each parameter. None
    for a model that can't be made on the `meta` device."""
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
        largest_layer_bytes=largest_layer_bytes(model),
    )


class SavedMemory(saved_tensors_hooks):
    """`with SavedMemory(model) as saved: model(batch)`; then `saved.bytes` is what autograd keeps of it for the
    backward pass: every memory once, parameters and buffers not counted."""

    def __init__(self, model: nn.Module) -> None:
        own = {each.untyped_storage().data_ptr() for each in (*model.parameters(), *model.buffers())}
        kept: dict[int, int] = {}

        def note(tensor: Tensor) -> Tensor:
            place = tensor.untyped_storage().data_ptr()
            if place not in own:
                kept[place] = tensor.untyped_storage().nbytes()
            return tensor

        super().__init__(note, lambda tensor: tensor)
        self._kept = kept

    def __enter__(self) -> SavedMemory:  # type: ignore[override]  # torch's returns nothing
        super().__enter__()
        return self

    @property
    def bytes(self) -> int:
        return sum(self._kept.values())


def largest_layer_bytes(model: nn.Module) -> int:
    """Bytes of the parameters that the module with the most of them holds itself."""
    return max((_bytes(module.parameters(recurse=False)) for module in model.modules()), default=0)


def _bytes(tensors: object) -> int:
    return sum(each.numel() * each.element_size() for each in tensors)  # type: ignore[attr-defined]
