"""How the findings write a command."""

from __future__ import annotations

import re


def with_option(command: str, name: str, value: object) -> str:
    """A command line with `--name value` in place of what it says there, or behind it."""
    return f"{re.sub(rf' --{name} [^ ]+', '', command)} --{name} {value}"
