"""The check that all networks share."""

from __future__ import annotations


def check_classes(classes: int, network: str) -> int:
    """`classes` itself; ValueError unless it is a whole number of at least 2."""
    if isinstance(classes, bool) or not isinstance(classes, int) or classes < 2:
        raise ValueError(f"{network}(classes={classes!r}) is not possible; give a whole number of at least 2 classes")
    return classes
