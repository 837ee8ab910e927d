"""Targets that are read one by one: a test asks for one or two of them, and each needs tables of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lockstep.analysis.stored import Stored
from lockstep.analysis.targets import Target, target_table


class ReadTargets(dict[str, Any]):
    """The rows of `target_table` by their targets' names, each read when it is asked for; `whole()` reads all."""

    def __init__(self, targets: Sequence[Target], stored: Stored) -> None:
        super().__init__()
        self._targets, self._stored = {target.name: target for target in targets}, stored

    def __missing__(self, name: str) -> Any:
        self[name] = target_table([self._targets[name]], self._stored).iloc[0]
        return self[name]

    def whole(self) -> dict[str, Any]:
        return {name: self[name] for name in self._targets}
