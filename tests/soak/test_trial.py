"""How the soak judges a run: of a small program, which ends as it is told."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import psutil
import pytest

from lockstep.engine.job import Job
from lockstep.records import RunFolder, make_row
from soak import faults, leftovers, trial
from soak.test_soak import NAMED, records
from soak.trial import Trial

PROGRAM = """
import os, pathlib, sys, time
orders, log = map(pathlib.Path, sys.argv[1:])
orders.with_name("ready").touch()
parent = os.getppid()
while not orders.exists() and os.getppid() == parent:
    time.sleep(0.01)
code, _, text = orders.read_text().partition("\\n")
with log.open("a") as stream:
    stream.write(text)
sys.exit(int(code))
"""


@dataclass(frozen=True)
class Act(faults.Fault):
    """What happens to a run in place of a signal."""

    act: Callable[[], None]

    def hit(self, process: psutil.Process) -> None:
        self.act()


class Fake:
    """A small program that runs in place of a notebook, until it is told how to end."""

    def __init__(self, folder: Path) -> None:
        self.place = trial.Place("02", folder, folder)
        self.log, self.orders = folder / "log", folder / "orders"
        self.starts: Callable[[], None] = lambda: None
        self.place.records.parent.mkdir(parents=True)
        self.store(0, 0, 1, 1)

    def command(self, *_: object) -> list[str]:
        self.starts()
        return [sys.executable, "-S", "-c", PROGRAM, str(self.orders), str(self.log)]

    def store(self, *rounds: int) -> None:
        self.place.records.write_bytes(records(*rounds))

    def tell(self, text: str) -> None:
        with self.log.open("a") as stream:
            stream.write(text)

    def end(self, code: int = 0, text: str = "") -> None:
        part = self.orders.with_suffix(".part")
        part.write_text(f"{code}\n{text}")
        part.rename(self.orders)

    def hit(self, act: Callable[[], None], seconds: float = 0.0) -> tuple[list[Trial], list[str]]:
        return trial.disturbed(self.place, self.log, 3, self._faults(Act(seconds, "kill", 0.0, 0.0, 0.0, True, act)))

    def _faults(self, fault: faults.Fault) -> Iterator[faults.Fault]:
        """For a moment after its start the system does not tell a program's environment."""
        deadline = time.monotonic() + 60.0
        while not self.orders.with_name("ready").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        yield fault


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Leftovers are not looked for: other tests have theirs meanwhile. Its records.csv is none of Lockstep's."""
    found = Fake(tmp_path)
    monkeypatch.setattr(trial, "Before", lambda: SimpleNamespace(look=lambda pids: None, left=lambda *of: []))
    monkeypatch.setattr(trial.Place, "wrong", lambda place: [])
    monkeypatch.setattr(trial, "command", found.command)
    return found


def test_finished_rounds_that_a_resume_changes_are_seen(fake: Fake) -> None:
    """Seen: what was finished was read anew at each fault, and the old content compared with nothing."""
    fake.starts = lambda: fake.store(0, 0, 7, 7)
    trials, others = fake.hit(fake.end)
    assert others == ["finished rounds have changed"]
    assert [each.unclean for each in trials] == [[]]


def test_what_a_run_tells_after_its_last_visit_is_read(fake: Fake) -> None:
    """Seen: no message after the first visit that was told after a fault."""

    def act() -> None:
        fake.tell(NAMED)
        fake.end(0, "Traceback (most recent call last):\n" * 2)

    trials, others = fake.hit(act)
    assert others == []
    assert [each.unclean for each in trials] == [["prints 'Traceback (most recent call last):'"] * 2]


def test_a_run_that_ends_before_it_is_hit_is_judged(fake: Fake) -> None:
    """Seen: neither its exit code nor its messages nor its leftovers were looked at."""
    fake.starts = lambda: fake.end(3, NAMED)
    trials, others = fake.hit(pytest.fail, seconds=600.0)
    assert trials == []
    assert others == [
        f"ended with 3: {NAMED.strip()}",
        "failed, and nothing was hit: rank 1 was killed by SIGKILL (step 3, phase exchange)",
    ]


def test_no_visit_of_an_undisturbed_run_may_fail(fake: Fake) -> None:
    """Seen: a run whose visits all fail, each by a rank that is named, was clean."""
    fake.starts = lambda: fake.end(0, NAMED)
    reason = "rank 1 was killed by SIGKILL (step 3, phase exchange)"
    assert trial.undisturbed(fake.place, fake.log) == [f"failed, and nothing was hit: {reason}"]


@pytest.mark.parametrize(
    ("code", "text", "noticed"), [(0, NAMED, True), (0, "round 0, 1/2: own: 3 images/s\n", False), (1, "", True)]
)
def test_a_fault_is_noticed_if_a_visit_fails_or_the_run_ends(fake: Fake, code: int, text: str, noticed: bool) -> None:
    """Seen: a row that says ok after its rank was killed, and nothing told of it."""
    (found,), _ = fake.hit(lambda: fake.end(code, text))
    assert found.noticed == noticed


def test_a_process_that_had_ended_by_itself_is_no_fault(fake: Fake) -> None:
    """Seen: counted as one that was dealt."""

    def act() -> None:
        fake.end()
        raise psutil.NoSuchProcess(7)

    assert fake.hit(act) == ([], [])


def test_the_end_is_judged_by_the_fault_that_ends_the_run() -> None:
    """A runner that is told to end may tell of one more visit, and a worker be hit, before it has ended."""
    trials = [Trial(0, "02", "terminate", "runner", 1.0), Trial(0, "02", "kill", "worker", 2.0)]
    nothing: Any = SimpleNamespace(left=lambda *of: [], wrong=lambda: [], temporary=Path())
    ended = SimpleNamespace(returncode=143)  # by SIGTERM
    run: Any = SimpleNamespace(
        process=ended, text="stopped by SIGTERM", before=nothing, place=nothing, wrong=lambda: [], token="", old=set()
    )
    trial._judge_end(run, trials)
    assert trials[-1].unclean == []
    trial._judge_end(run, trials[1:])
    assert trials[-1].unclean == ["ended with 143: stopped by SIGTERM"]


def test_rows_that_are_lost_and_tables_that_have_changed_are_damage(tmp_path: Path) -> None:
    """Seen: a round without one of its rows was taken for one that is being written, and no traced table was read."""
    place = trial.Place("02", tmp_path, tmp_path)
    with RunFolder(place.records.parent, {"parameters": {}}, {}) as run:
        rows = [make_row(Job.of(name), {}) for name in ("sequential", "processes")]
        run.write_round(rows, {"steps": pd.DataFrame({"round": [0], "seconds": [0.5]})})
    assert place.wrong() == []
    whole, steps = place.content(), place.records.with_name("steps.csv")
    place.records.write_bytes(whole[: whole.rstrip().rfind(b"\n") + 1])
    (said,) = place.wrong()
    assert "has 1 of its 2 rows" in said
    place.records.write_bytes(whole)
    steps.write_bytes(steps.read_bytes().replace(b"0.5", b"0.7"))
    (said,) = place.wrong()
    assert "steps.csv is not as it was written" in said


@pytest.mark.parametrize(("code", "wanted"), [(0, 2), (-15, 1), (-9, 0)])
def test_a_folder_of_a_killed_run_goes_with_the_next_that_comes_so_far(tmp_path: Path, code: int, wanted: int) -> None:
    """Seen: a run that was ended at 0.1 s was blamed for what the one before it, which was killed, had left."""
    (tmp_path / "lockstep-run-old").mkdir()
    old = {"lockstep-run-old"} if code else set()
    (tmp_path / "lockstep-run-new").mkdir()
    found = leftovers.Before().left("of no process", tmp_path, killed=code == -9, old=old)
    assert len([words for words in found if words.startswith("temporary file lockstep-run-")]) == wanted
