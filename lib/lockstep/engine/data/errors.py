"""The one error of this package."""

from __future__ import annotations


class DataError(ValueError):
    """Data that can't be used; the message names the value, where it is, and the fix."""
