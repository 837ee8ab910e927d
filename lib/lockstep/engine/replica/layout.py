"""The tensors of a whole model by name, and where each of them stands: what is trained, and what else training reads.

    parameters to train    one flat float32 vector        `Replica.parameters`
    float32 buffers        one flat float32 vector        `Replica.buffers`
    frozen parameters, and buffers of any other type      `Replica.others`, by name, each in its own type

A checkpoint holds all of them, and is of one layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

Place = tuple[nn.Module, str]
"""A module, and the name under which it holds a tensor itself."""


class Entry(NamedTuple):
    """A tensor of a model. `kind`: trained | frozen | buffer."""

    name: str
    kind: str
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        kind = "a buffer" if self.kind == "buffer" else self.kind
        return f"{kind}, {self.dtype} {list(self.shape)}"


@dataclass(frozen=True)
class TensorLayout:
    """What tensors a whole model has, whoever holds which part of it; each one counts once, however often it is used.

    `paths` are the modules' names. A module that holds some tensors of another one in its place gets its name.
    """

    entries: tuple[Entry, ...]
    paths: WeakKeyDictionary[nn.Module, str]

    @classmethod
    def of(cls, model: nn.Module) -> TensorLayout:
        """The layout of `model` as it is now."""
        found = [_entry(name, "trained" if p.requires_grad else "frozen", p) for name, p in model.named_parameters()]
        found += [_entry(name, "buffer", buffer) for name, buffer in model.named_buffers()]
        return cls(tuple(found), WeakKeyDictionary({module: name for name, module in model.named_modules()}))

    def check_trainable(self) -> None:
        """Raises ValueError unless every parameter to train is float32, as gradients and optimisers' state are."""
        for entry in self.entries:
            if entry.kind == "trained" and entry.dtype != "float32":
                raise ValueError(
                    f"parameter {entry.name!r} is {entry.dtype}, and parameters are trained in float32; give the model "
                    "as float32 (model.float()), with precision='bfloat16' to compute in bfloat16"
                )

    def of_kind(self, kind: str) -> list[Entry]:
        """The tensors of one kind, in the model's order."""
        return [entry for entry in self.entries if entry.kind == kind]

    def others(self, model: nn.Module, frozen: bool = True) -> Iterator[tuple[str, Place, Tensor | None]]:
        """Name and place of each tensor of `model`, the whole or a part, that is in neither flat vector; None is a
        buffer that is not set yet. `frozen`: the parameters too."""
        kinds = {entry.name: entry.kind for entry in self.entries}
        flat = {entry.name for entry in self.entries if _is_averaged(entry)}
        seen: set[int] = set()
        for module in model.modules():
            if module not in self.paths:
                continue  # it wraps others, and holds nothing
            prefix = f"{self.paths[module]}." if self.paths[module] else ""
            for local, parameter in module._parameters.items():
                if frozen and kinds.get(prefix + local) == "frozen":
                    yield prefix + local, (module, local), parameter
            for local, buffer in module._buffers.items():
                if buffer is not None and id(buffer) in seen:
                    continue
                seen.add(id(buffer))
                if prefix + local not in flat:
                    yield prefix + local, (module, local), buffer


def _entry(name: str, kind: str, tensor: Tensor) -> Entry:
    return Entry(name, kind, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))


def _is_averaged(entry: Entry) -> bool:
    return entry.kind == "buffer" and entry.dtype == "float32"


def difference(there: Sequence[Entry], here: Sequence[Entry]) -> str:
    """The first tensor in which two models differ, with what it is in either; empty if all are the same."""
    known, own = ({entry.name: entry for entry in entries} for entries in (there, here))
    for name, entry in own.items():
        if known.get(name) != entry:
            return f"{name!r} is {known.get(name, 'missing')} there, {entry} here"
    for name, entry in known.items():
        if name not in own:
            return f"{name!r} is {entry} there, missing here"
    moved = [one.name for one, other in zip(there, here, strict=True) if one != other]
    return f"{moved[0]!r} stands at another place" if moved else ""


def averaged_buffers(model: nn.Module) -> list[tuple[Tensor, list[Place]]]:
    """The float32 buffers, each once, with all modules that hold it."""
    found: dict[int, tuple[Tensor, list[Place]]] = {}
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.dtype == torch.float32:
                found.setdefault(id(buffer), (buffer, []))[1].append((module, name))
    return list(found.values())


def trained_layers(model: nn.Module) -> list[list[nn.Parameter]]:
    """The trainable parameters by the module that owns them, in module order; a shared one counts once."""
    seen: set[int] = set()
    layers = []
    for module in model.modules():
        own = [p for p in module.parameters(recurse=False) if p.requires_grad and id(p) not in seen]
        seen.update(id(p) for p in own)
        if own:
            layers.append(own)
    return layers


def agreed(everyones: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """What ranks agree on of their buffers, by rank: the mean of floating point numbers, else what the first has."""
    found = {}
    for name, first in everyones[0].items():
        same = [each[name] for each in everyones if name in each and each[name].shape == first.shape]
        if first.is_floating_point() or first.is_complex():
            wide = torch.complex128 if first.is_complex() else torch.float64
            found[name] = torch.stack([each.to(wide) for each in same]).mean(0).to(first.dtype)
        else:
            found[name] = first
    return found


def put_others(slots: Iterable[tuple[str, Place, Tensor | None]], values: Mapping[str, Tensor]) -> None:
    """Give the tensors of `slots` the values that have their names, in place where shape and type are the same."""
    with torch.no_grad():
        for name, (module, local), now in list(slots):
            value = values.get(name)
            if value is None:
                continue
            in_place = now is not None and now.shape == value.shape and now.dtype == value.dtype and now.is_contiguous()
            if now is not None and (in_place or isinstance(now, nn.Parameter)):
                now.data.copy_(value)
            else:
                module._buffers[local] = value.to(value.device if now is None else now.device, copy=True)
