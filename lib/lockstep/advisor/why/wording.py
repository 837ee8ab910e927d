"""How the findings write a time, a size and a command."""

from __future__ import annotations

import re


def took(seconds: float) -> str:
    """'2.31 s', '41.0 ms', '12 µs'"""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"


def with_option(command: str, name: str, value: object) -> str:
    """A command line with `--name value` in place of what it says there, or behind it."""
    return f"{re.sub(rf' --{name} [^ ]+', '', command)} --{name} {value}"


def amount_text(bytes_: float) -> str:
    """'228.0 MB', '3.5 kB'"""
    return f"{bytes_ / 1e6:.1f} MB" if bytes_ >= 1e6 else f"{bytes_ / 1e3:.1f} kB"
