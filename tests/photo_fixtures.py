"""Fixtures of the tests that look at photos, imported by name where they are used."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from lockstep.engine.data import checking
from lockstep.engine.data.photos import decode_photo
from photo_sets import photo_set


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """40 to train, 40 to test: two of a split may be unreadable."""
    return photo_set(tmp_path / "root" / "fire-smoke")


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The photos that are decoded to be checked."""
    seen: list[str] = []

    def noted(path: str, *arguments: Any, **options: Any) -> Any:
        seen.append(os.path.basename(path))
        return decode_photo(path, *arguments, **options)

    monkeypatch.setattr(checking, "decode_photo", noted)
    return seen
