"""The numbers of the system's state that come with an observation, such as load, free memory or burst credits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lockstep.engine.forecasts.kept import Kept

Array = NDArray[np.float64]


class Readings(Kept):
    """Holds them until they are absorbed: NaN where a number is unknown. The first observation of all names them."""

    kept: ClassVar[tuple[str, ...]] = ("names", "_begun", "_values")

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.names: list[str] = []
        self._begun = False
        self._values = np.empty((workers, 0))

    def check(self, system: Mapping[str, float] | None) -> None:
        """Raises ValueError for a name that the first observation did not have, and for an infinite number."""
        self._check_names(system)
        for name, value in (system or {}).items():
            if math.isinf(value):
                raise ValueError(f"system state {name}={value!r} is not possible; give a number, or NaN if unknown")

    def put(self, worker: int, system: Mapping[str, float] | None) -> None:
        """The numbers of one worker, which `check` has seen."""
        self._begin(system)
        if self.names:
            given = system or {}
            self._values[worker] = [given.get(name, math.nan) for name in self.names]

    def checked_round(self, system: Mapping[str, ArrayLike] | None, seen: NDArray[np.bool_]) -> Array:
        """[workers, numbers] in the order of names. Raises ValueError as `check` does, and for a wrong shape."""
        self._check_names(system)
        given = {name: np.asarray(value, np.float64) for name, value in (system or {}).items()}
        for name, values in given.items():
            if values.shape != (self.workers,):
                raise ValueError(f"system state {name}: {self.workers} workers need that many, not {values.shape}")
            if (bad := np.flatnonzero(seen & np.isinf(values))).size:
                raise ValueError(f"system state {name} of worker {bad[0]} is infinite; give a number, or NaN")
        if seen.any():
            self._begin(system)
        unknown = np.full(self.workers, np.nan)
        columns = [given.get(name, unknown) for name in self.names]
        return np.stack(columns, axis=1) if columns else np.empty((self.workers, 0))

    def put_round(self, who: NDArray[np.intp], readings: Array) -> None:
        """The rows of `readings` that belong to the workers `who`."""
        if self.names:
            self._values[who] = readings[who]

    def take(self, who: NDArray[np.intp]) -> Array:
        """[k, numbers] of the workers `who`."""
        return self._values[who]

    def _check_names(self, system: Mapping[str, object] | None) -> None:
        new = sorted(set(system or {}) - set(self.names))
        if self._begun and new:
            there = ", ".join(self.names) or "none"
            raise ValueError(f"system state {', '.join(new)}: the first observation named {there}; name all in it")

    def _begin(self, system: Mapping[str, object] | None) -> None:
        if not self._begun:
            self._begun = True
            self.names = sorted(system or {})
            self._values = np.full((self.workers, len(self.names)), np.nan)
