"""How replicas agree: the options of syncs, peers and policies, which their own files declare.

The fields here hold a place among the columns, since records that are stored have them. A new strategy's options need
no line here: `with_new_options` adds what is declared and has no place yet behind the last column.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, TypeVar

from lockstep.engine import registry
from lockstep.engine.declared import DeclaredSync
from lockstep.engine.job.cell import Cell
from lockstep.engine.options import JobError

_Class = TypeVar("_Class", bound=type)


def declared(name: str) -> Any:
    """The field of an option that a strategy's file declares."""
    option = registry.declared_options()[name]
    return dataclasses.field(default=option.default, metadata={"option": option})


@dataclass(frozen=True)
class Agreement(Cell):
    """What the sync reads. With any other sync an option stands at its default: a record claims only what ran."""

    bucket: str = declared("bucket")
    overlap: bool = declared("overlap")
    transport: str = declared("transport")
    exchange_every: int = declared("exchange_every")
    state_averaged: bool = declared("state_averaged")
    compression: str = declared("compression")
    density: float = declared("density")
    policy: str = declared("policy")
    shards: int = declared("shards")
    opt_weight: str = declared("opt_weight")
    executor_data: str = declared("executor_data")
    delays: str = declared("delays")

    @property
    def declared_sync(self) -> type[DeclaredSync] | None:
        """What the file of this job's sync or peer declares; None for a row that trains nothing."""
        return registry.sync_of(self.sync)

    def check(self) -> None:
        super().check()
        for name, (field, names) in registry.readers().items():
            named = getattr(self, field)
            if named not in names and self.changed(name):
                only = f"only {names[0]} reads it" if len(names) == 1 else f"only {' and '.join(names)} read it"
                raise JobError(f"{name}={getattr(self, name)!r} does nothing with {field}={named!r}; {only}")

    def check_strategies(self) -> None:
        """Raises JobError for what the sync or the launcher itself refuses; a sync asks its policy."""
        for strategy in (self.declared_sync, registry.launcher_of(self.launcher)):
            if strategy is not None:
                strategy.check(self.values)
                for option in strategy.options:
                    if option.goes_with is not None:
                        option.goes_with(self.values)


def with_new_options(kind: _Class) -> _Class:
    """A decorator below `@dataclass`: gives `kind` a field for every declared option that has none yet.

    Raises TypeError for an option with the name of a field that is none of a strategy's.
    """
    known = {field.name: field.metadata["option"] for field in dataclasses.fields(kind)}
    for name, option in registry.declared_options().items():
        if name not in known:
            kind.__annotations__[name] = option.kind
            setattr(kind, name, declared(name))
        elif known[name] != option:
            raise TypeError(f"a strategy declares option {name!r}, but a job has a field of that name; rename it")
    return kind
