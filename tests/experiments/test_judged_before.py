"""Verdicts are computed once for the same files and the same code, and again for anything else."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lockstep.analysis.confidence import Estimate, highest
from lockstep.analysis.stored import Stored, with_gpu
from lockstep.analysis.verdicts import Claim, Verdict
from lockstep.experiments import judged_before as module
from lockstep.experiments.judged_before import judged_before

CLAIMS: list[dict[str, Any]] = [{"id": "one", "value": 2.0}]
PARTS = [Estimate(2.0, 1.5, 2.5, 7), Estimate(1.0, 0.5, 1.5, 7)]
FOUND = Verdict(
    "supported", "2 [1, 3]", "because",
    (("", Estimate(2.0, 1.0, 3.0, 7, apart=((0, PARTS[0]),))), ("all", highest(PARTS))),
    chance=np.float64(0.01), rounds_more=math.inf,
)  # fmt: skip


def rule(claim: Claim, stored: Stored) -> Verdict:
    return FOUND


class Counted:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> list[Verdict]:
        self.times += 1
        return [FOUND]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path / "cache"))
    found = tmp_path / "run"
    found.mkdir()
    (found / "records.csv").write_text("round\n0\n")
    (found / "run.json").write_text("{}")
    return found


def same(found: list[Verdict]) -> None:
    (verdict,) = found
    assert (verdict.answer, verdict.measured, verdict.reason) == ("supported", "2 [1, 3]", "because")
    assert verdict.chance == 0.01
    assert math.isinf(verdict.rounds_more) and math.isnan(verdict.round_seconds)
    assert [(name, str(number)) for name, number in verdict.numbers] == [(n, str(e)) for n, e in FOUND.numbers]
    assert verdict.numbers[0][1].apart[0][1] == PARTS[0]


def test_the_same_files_are_judged_once(folder: Path) -> None:
    compute = Counted()
    for _ in range(3):
        same(judged_before(folder, CLAIMS, {"rule": rule}, compute))
    assert compute.times == 1
    (kept,) = (folder.parent / "cache" / "verdicts").iterdir()
    assert kept.stat().st_mode & 0o077 == 0, "nobody else's"


def another_record(folder: Path) -> dict[str, Any]:
    (folder / "records.csv").write_text("round\n1\n")
    return {}


def another_table(folder: Path) -> dict[str, Any]:
    (folder / "steps.csv").write_text("round\n0\n")
    return {}


def another_session(folder: Path) -> dict[str, Any]:
    (folder / "run.json").write_text('{"sessions": []}')
    return {}


def a_gpu_elsewhere(folder: Path) -> dict[str, Any]:
    beside = with_gpu(folder)
    beside.mkdir(parents=True)
    (beside / "records.csv").write_text("round\n0\n")
    return {}


@pytest.mark.parametrize(
    "change",
    [
        another_record, another_table, another_session, a_gpu_elsewhere,
        lambda folder: {"claims": [{"id": "one", "value": 3.0}]},
        lambda folder: {"rules": {"rule": lambda claim, stored: Verdict("contradicted")}},
        lambda folder: {"rules": {"renamed": rule}},
    ],
)  # fmt: skip
def test_anything_else_is_judged_anew(folder: Path, change: Callable[[Path], dict[str, Any]]) -> None:
    compute = Counted()
    judged_before(folder, CLAIMS, {"rule": rule}, compute)
    given = {"claims": CLAIMS, "rules": {"rule": rule}, **change(folder)}
    judged_before(folder, given["claims"], given["rules"], compute)
    assert compute.times == 2


def test_a_change_of_the_library_is_another_fingerprint(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = module.fingerprint(folder, CLAIMS, {"rule": rule})
    assert module.fingerprint(folder, CLAIMS, {"rule": rule}) == before
    more = folder / "new.py"
    more.write_text("")
    sources = [*module._sources(), more]
    monkeypatch.setattr(module, "_sources", lambda: sources)
    assert module.fingerprint(folder, CLAIMS, {"rule": rule}) != before


def test_a_damaged_file_and_a_folder_that_cannot_be_written_only_cost_time(folder: Path) -> None:
    compute = Counted()
    judged_before(folder, CLAIMS, {"rule": rule}, compute)
    (kept,) = (folder.parent / "cache" / "verdicts").iterdir()
    for content in (b"", b"[{}]", b"\xff\xfe", b"[1]"):
        kept.write_bytes(content)
        same(judged_before(folder, CLAIMS, {"rule": rule}, compute))
    assert compute.times == 5
    kept.unlink()
    (folder.parent / "cache" / "verdicts").rmdir()
    (folder.parent / "cache" / "verdicts").write_text("a file where a folder should be")
    same(judged_before(folder, CLAIMS, {"rule": rule}, compute))
    assert compute.times == 6


def test_what_is_read_outlasts_what_is_only_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: runs that tests made up drove out the verdicts of the reference, which every notebook reads."""
    monkeypatch.setattr(module, "KEPT", 3)
    compute = Counted()
    for number in range(6):
        judged_before(folder, CLAIMS, {"rule": rule}, compute)
        judged_before(folder, [{"id": str(number)}], {"rule": rule}, Counted())
    assert compute.times == 1


def test_a_cache_that_can_only_be_read_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any, **options: Any) -> None:
        raise PermissionError

    compute = Counted()
    judged_before(folder, CLAIMS, {"rule": rule}, compute)
    monkeypatch.setattr(module.os, "utime", refuse)
    same(judged_before(folder, CLAIMS, {"rule": rule}, compute))
    assert compute.times == 1


def test_the_cache_stays_small(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 3)
    for number in range(6):
        judged_before(folder, [{"id": str(number)}], {"rule": rule}, Counted())
    assert len(list((folder.parent / "cache" / "verdicts").iterdir())) == 3
