"""Runs of a notebook that are hit, one fault after the other for as long as they live, and what is told of each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from lockstep.records import RecordError, read_records
from soak import recorded, roles
from soak.faults import Fault
from soak.leftovers import Before
from soak.notebooks import NOTEBOOKS, command

HUNG_SECONDS = 180.0
"""Nothing is told for so long after a fault: Lockstep's own limits, such as that of a start, are shorter."""
GIVE_UP_SECONDS = 4.0
"""Whoever finds a runner or a kernel stopped waits so long, and ends the run: nothing else can."""
_POLL_SECONDS = 0.1


@dataclass
class Trial:
    """One fault, and everything that was not as it must be after it."""

    run: int
    notebook: str
    kind: str
    role: str
    seconds: float  # from the start of its run to the fault
    told: str = ""
    unclean: list[str] = field(default_factory=list)


@dataclass
class Place:
    """Where one notebook is run again and again: each run goes on in the last one's folder until that is complete."""

    number: str
    root: Path
    temporary: Path
    folders: int = 0
    rows_of_a_round: int = 0
    length_seconds: float = 0.0

    @property
    def out(self) -> Path:
        return self.root / "out" / f"{self.number}-{self.folders}"

    @property
    def records(self) -> Path:
        return self.out / NOTEBOOKS[self.number].name / "records.csv"

    def content(self) -> bytes:
        return self.records.read_bytes() if self.records.is_file() else b""

    def finished(self) -> bytes:
        return recorded.finished(self.content(), self.rows_of_a_round)

    def wrong(self, before: bytes) -> list[str]:
        """What is wrong with the records, of which `before` was finished."""
        if not self.content().startswith(before):
            return ["finished rounds have changed"]
        try:
            rows = Counter(read_records(self.records.parent)["round"]) if self.records.is_file() else Counter()
        except RecordError as error:
            return [] if "of its" in str(error) else [f"records: {error}"]  # the last round was being written
        return [] if sorted(rows) == list(range(len(rows))) else [f"rounds {sorted(rows)} are stored"]


class Running:
    """A `lockstep run` of a place, in a session of its own."""

    def __init__(self, place: Place, log: Path) -> None:
        self.place, self.log, self.token = place, log, uuid.uuid4().hex
        self.before, self.finished = Before(), place.finished()
        environment = os.environ | {roles.MARK: self.token, "TMPDIR": str(place.temporary)}
        environment["LOCKSTEP_CACHE"] = str(place.root / "cache")
        words = command(sys.executable, place.number, place.out)
        self.began = time.monotonic()
        with log.open("w") as stream:
            self.process = subprocess.Popen(
                words, cwd=place.root, env=environment, stdout=stream, stderr=stream, start_new_session=True
            )

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait(self, until: Callable[[], bool], seconds: float) -> bool:
        """Whether the run has ended or `until` holds within so many seconds."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None and not until():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def kill(self) -> None:
        """End the processes of this run, and of no other."""
        for process in roles.of_run(self.token).values():
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self.process.wait()


def undisturbed(place: Place, log: Path) -> list[str]:
    """Run a place to its end; what was not as it must be. It then begins a new folder."""
    running = Running(place, log)
    try:
        ended = running.wait(lambda: False, 2 * HUNG_SECONDS)
    finally:
        if running.process.poll() is None:
            running.kill()
    if not ended:
        return ["an undisturbed run did not end"]
    place.length_seconds = place.length_seconds or time.monotonic() - running.began
    rows = len(place.content().splitlines()[1:])
    place.rows_of_a_round = place.rows_of_a_round or rows // NOTEBOOKS[place.number].rounds
    found = [] if running.process.returncode == 0 else [f"ended with {running.process.returncode}"]
    found += recorded.complaints(running.text) + place.wrong(running.finished)
    found += [] if place.content() else ["no records"]
    found += running.before.left(running.token, place.temporary, False)
    place.folders += 1
    return found


def disturbed(place: Place, log: Path, run: int, faults: Sequence[Fault]) -> list[Trial]:
    """A run, hit by `faults` one after the other for as long as it lives; a trial for each."""
    running = Running(place, log)
    trials: list[Trial] = []
    try:
        before = _hit_all(running, run, faults, trials)
        if not running.wait(lambda: False, HUNG_SECONDS):
            (trials[-1].unclean if trials else []).append(f"hung: the run did not end within {HUNG_SECONDS:.0f} s")
            running.kill()
        if trials:
            _judge_end(running, trials, before)
    finally:
        running.kill()  # also where the soak itself is interrupted
    if running.process.returncode == 0:
        place.folders += 1
    return trials


def _hit_all(running: Running, run: int, faults: Sequence[Fault], trials: list[Trial]) -> bytes:
    """Add a trial for each fault that finds the run alive; what was finished before the last of them."""
    before = running.finished
    for fault in faults:
        running.wait(lambda: False, fault.seconds)
        if running.process.poll() is not None:
            break
        before = running.place.finished()
        if (trial := _hit(running, fault, run)) is None:
            break
        trials.append(trial)
        if trial.unclean:
            break
    return before


def _hit(running: Running, fault: Fault, run: int) -> Trial | None:
    """Hit one process, and wait until the run has told of it, or of the next visit to a cell, or has ended."""
    there = roles.of_run(running.token)
    by_role = roles.by_role(there)
    if not by_role:
        return None
    running.before.look(list(there))
    role, victim = fault.victim(by_role)
    said = len(running.text)
    trial = Trial(run, running.place.number, fault.kind, role, round(time.monotonic() - running.began, 2))
    try:
        fault.hit(victim)
    except psutil.NoSuchProcess:
        trial.told = "it had ended by itself"
        return trial
    if role in roles.ENDS_THE_RUN and fault.kind == "stop":
        running.wait(lambda: False, GIVE_UP_SECONDS)
        running.process.send_signal(signal.SIGKILL if role == "runner" else signal.SIGINT)
    if not running.wait(lambda: recorded.rounds_told(running.text[said:]) > 0, HUNG_SECONDS):
        trial.unclean.append(f"hung: nothing was told for {HUNG_SECONDS:.0f} s")
        running.kill()
    told = running.text[said:]
    trial.told = next((line for line in told.splitlines() if "failed" in line or "stopped by" in line), "")
    trial.unclean += recorded.complaints(told)
    return trial


def _judge_end(running: Running, trials: list[Trial], before: bytes) -> None:
    """What the end of a run says of its last fault, and what it left."""
    last, code = trials[-1], running.process.returncode
    killed = code == -signal.SIGKILL
    if not any("hung" in words for words in last.unclean):
        last.unclean += recorded.ending_complaints(last.role, last.kind, code, running.text)
    last.unclean += running.place.wrong(before) + running.before.left(running.token, running.place.temporary, killed)
    if code and not last.told:
        last.told = (running.text.strip().splitlines() or [""])[-1]
