"""What a checkpoint holds of a forecaster: plain numbers, texts, lists and arrays, by name."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar, cast

import numpy as np


class Kept:
    """An object whose attributes in `kept`, those of its base classes included, are all that changes in it.

    An attribute may be a number, a list, an array, another `Kept` or a list of those; a `Kept` must exist when it is
    loaded, so that constructors make them all.
    """

    kept: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def _names(cls) -> list[str]:
        return list(dict.fromkeys(name for kind in reversed(cls.__mro__) for name in vars(kind).get("kept", ())))

    def state(self) -> dict[str, Any]:
        """A copy of everything that changes; `load` of an object made with the same arguments continues from it."""
        return {name: _saved(getattr(self, name)) for name in self._names()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continues from what `state` returned.

        Raises ValueError where names, or the shape of an array, are not those of this object.
        """
        if sorted(state) != sorted(self._names()):
            raise ValueError(f"{type(self).__name__} keeps {sorted(self._names())}, but the state has {sorted(state)}")
        for name in self._names():
            setattr(self, name, _restored(f"{type(self).__name__}.{name}", getattr(self, name), state[name]))


def _saved(value: Any) -> Any:
    if isinstance(value, Kept):
        return value.state()
    if isinstance(value, list) and value and isinstance(value[0], Kept):
        return [item.state() for item in value]
    return copy.deepcopy(value)


def _restored(where: str, present: Any, value: Any) -> Any:
    if isinstance(present, Kept):
        present.load(value)
        return present
    if isinstance(present, list) and present and isinstance(present[0], Kept):
        if len(present) != len(value):
            raise ValueError(f"{where}: {len(present)} are there, and the state has {len(value)}")
        for item, kept in zip(present, value, strict=True):
            item.load(kept)
        return present
    if isinstance(present, np.ndarray):
        array = np.array(value, dtype=present.dtype)
        if array.shape != present.shape and present.size:
            raise ValueError(f"{where}: its shape is {present.shape}, and the state's is {array.shape}")
        return array
    return type(present)(cast(Any, copy.deepcopy(value)))
