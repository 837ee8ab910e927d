"""What the conformance tests try: the options that the file of each sync and peer declares."""

from __future__ import annotations

from typing import Any

from lockstep.engine import registry
from lockstep.engine.declared import DeclaredSync, usual_values

Variants = dict[str, dict[str, Any]]
WORKERS = (2, 3)
"""The tests' numbers of workers."""


def equal_to_one_worker() -> Variants:
    """Fields of `Job`, by the variant's name: those that reach the parameters of one worker, with SGD."""
    return {name: fields for name, fields in _all().items() if _is_equal(fields)}


def different() -> Variants:
    """Those that reach other parameters; all else that the suite asks for, they must have."""
    return {name: fields for name, fields in _all().items() if not _is_equal(fields)}


def plain() -> Variants:
    """The first variant of each sync and peer, which has the name and the usual options of the sync."""
    return {name: {"sync": name, **declared.usual} for name, declared in _tested().items()}


def _tested() -> dict[str, type[DeclaredSync]]:
    """Syncs that agree several workers, and peers that run on more than a launcher of their own."""
    return {
        name: declared
        for name, declared in registry.syncs_and_peers().items()
        if not declared.alone and not declared.launchers
    }


def _all() -> Variants:
    found: Variants = {}
    for name, declared in _tested().items():
        base = plain()[name]
        for variant, options in {name: {}, **declared.variants}.items():
            assert variant not in found, f"two strategies declare the variant {variant!r}"
            found[variant] = base | dict(options)
    return found


def _is_equal(fields: dict[str, Any]) -> bool:
    declared = registry.sync_of(fields["sync"])
    assert declared is not None
    values = usual_values(declared) | fields
    return all(declared.equality(values | {"workers": workers}).equal for workers in WORKERS)
