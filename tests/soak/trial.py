"""Runs of a notebook that are hit, one fault after the other for as long as they live, and what is told of each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from lockstep.records import RecordError, read_records, read_tables
from soak import recorded, roles
from soak.faults import Fault
from soak.leftovers import Before
from soak.notebooks import NOTEBOOKS, command
from soak.phases import phase_of

HUNG_SECONDS = 180.0
"""Nothing is told for so long after a fault: Lockstep's own limits, such as that of a start, are shorter."""
UNDISTURBED_SECONDS = 600.0
GIVE_UP_SECONDS = 2.0
"""Whoever finds a runner or a kernel stopped waits so long, and ends the run: nothing else can."""
ROUNDS = 500
"""That a run which is hit would measure: more than it lives to see."""
END = Fault(0.0, "interrupt", 0.99, 0.0, 0.0, last=True)
"""A run that its last fault has not ended, such as a kernel that was deaf to SIGINT just then, is hit by this one."""
_MORE_VISITS = 3  # that a run may tell of while it ends
_POLL_SECONDS = 0.1


class Halted(BaseException):
    """The soak is interrupted: no run goes on."""


@dataclass
class Trial:
    """One fault, and everything that was not as it must be after it."""

    run: int
    notebook: str
    kind: str
    role: str
    seconds: float  # from the start of its run to the fault
    phase: str = ""  # what the run was doing then: one of `phases.PHASES`
    told: str = ""
    noticed: bool = False  # a visit failed after it, or the run ended
    unclean: list[str] = field(default_factory=list)


@dataclass
class Place:
    """Where one notebook is run again and again: each run goes on in the last one's folder until that is complete."""

    number: str
    root: Path
    temporary: Path
    folders: int = 0
    halt: threading.Event = field(default_factory=threading.Event)

    @property
    def rounds(self) -> int:
        """How many are stored and finished."""
        return max(0, len(self.finished().splitlines()) - 1) // NOTEBOOKS[self.number].rows

    @property
    def out(self) -> Path:
        return self.root / "out" / f"{self.number}-{self.folders}"

    @property
    def records(self) -> Path:
        return self.out / NOTEBOOKS[self.number].name / "records.csv"

    def content(self) -> bytes:
        return self.records.read_bytes() if self.records.is_file() else b""

    def finished(self) -> bytes:
        return recorded.finished(self.content(), NOTEBOOKS[self.number].rows)

    def wrong(self) -> list[str]:
        """What is wrong with the records and the traced tables, once nothing writes to them any more."""
        try:
            read_tables(self.records.parent)
            rows = Counter(read_records(self.records.parent)["round"]) if self.records.is_file() else Counter()
        except RecordError as error:
            return [f"records: {error}"]
        return [] if sorted(rows) == list(range(len(rows))) else [f"rounds {sorted(rows)} are stored"]


class Running:
    """A `lockstep run` of a place, in a session of its own."""

    def __init__(self, place: Place, log: Path, rounds: int) -> None:
        self.place, self.log, self.token = place, log, uuid.uuid4().hex
        self.before, self.finished = Before(), place.finished()
        self.old = set(os.listdir(place.temporary))
        self.complaints: Counter[str] = Counter()
        environment = os.environ | {roles.MARK: self.token, "TMPDIR": str(place.temporary)}
        environment["LOCKSTEP_CACHE"] = str(place.root / "cache")
        words = command(sys.executable, place.number, place.out, rounds)
        self.began = time.monotonic()
        with log.open("w") as stream:
            self.process = subprocess.Popen(
                words, cwd=place.root, env=environment, stdout=stream, stderr=stream, start_new_session=True
            )

    @property
    def going_on(self) -> bool:
        return self.process.poll() is None

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def wrong(self) -> list[str]:
        """What is wrong with its messages and with rounds that were finished, and was not when this was last asked."""
        ended = self.process.poll() is not None
        content, text = self.place.content(), self.text
        found = [] if content.startswith(self.finished) else ["finished rounds have changed"]
        self.finished = recorded.finished(content, NOTEBOOKS[self.place.number].rows)
        complaints = Counter(recorded.complaints(text if ended else text[: text.rfind("\n") + 1]))
        found += (complaints - self.complaints).elements()
        self.complaints = complaints
        return found

    def wait(self, until: Callable[[], bool], seconds: float) -> bool:
        """Whether the run has ended or `until` holds within so many seconds."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None and not until():
            if self.place.halt.is_set():
                raise Halted
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
    """Run one round more to its end; what was not as it must be. The place then begins a new folder."""
    running = Running(place, log, place.rounds + 1)
    try:
        ended = running.wait(lambda: False, UNDISTURBED_SECONDS)
    finally:
        if running.process.poll() is None:
            running.kill()
    if not ended:
        return ["an undisturbed run did not end"]
    found = _untouched(running) + ([] if place.rounds else ["no round was finished"])
    place.folders += 1
    return found


def disturbed(place: Place, log: Path, run: int, faults: Iterable[Fault]) -> tuple[list[Trial], list[str]]:
    """A run, hit by `faults` one after the other for as long as it lives: a trial for each, and what was not as it must
    be before the first of them, or in a run that ended before it was hit."""
    running = Running(place, log, place.rounds + ROUNDS)
    trials: list[Trial] = []
    others: list[str] = []
    try:
        _hit_all(running, run, faults, trials, others)
        if not running.wait(lambda: False, HUNG_SECONDS):
            hung = f"hung: the run did not end within {HUNG_SECONDS:.0f} s"
            (trials[-1].unclean if trials else others).append(hung)
            running.kill()
        if trials:
            _judge_end(running, trials)
        else:
            others += _untouched(running)
    finally:
        running.kill()  # also where the soak itself is interrupted
    if running.process.returncode == 0:
        place.folders += 1
    return trials, others


def _hit_all(running: Running, run: int, faults: Iterable[Fault], trials: list[Trial], others: list[str]) -> None:
    """Add a trial for each fault that finds the run alive, and to `others` what was wrong before the first of them."""
    for fault in faults:
        running.wait(lambda: False, fault.seconds)
        (trials[-1].unclean if trials else others).extend(running.wrong())
        if not running.going_on or (trials and trials[-1].unclean):
            break
        if (trial := _hit(running, fault, run)) is not None:
            trials.append(trial)
    said = len(running.text)
    running.wait(lambda: recorded.rounds_told(running.text[said:]) > _MORE_VISITS, HUNG_SECONDS)
    if running.going_on and (trial := _hit(running, END, run)) is not None:
        trials.append(trial)


def _hit(running: Running, fault: Fault, run: int) -> Trial | None:
    """Hit one process, and wait until the run has told of it, or of the next visit to a cell, or has ended. None if
    there was nothing to hit."""
    there = roles.of_run(running.token)
    by_role = roles.by_role(there)
    if not by_role:
        return None
    running.before.look(list(there))
    role, victim = fault.victim(by_role)
    said = len(running.text)
    seconds, phase = round(time.monotonic() - running.began, 2), phase_of(there, running.text)
    trial = Trial(run, running.place.number, fault.kind, role, seconds, phase)
    try:
        fault.hit(victim)
    except psutil.NoSuchProcess:
        return None  # it had ended by itself
    if role in roles.ENDS_THE_RUN and fault.kind == "stop":
        running.wait(lambda: False, GIVE_UP_SECONDS)
        running.process.send_signal(signal.SIGKILL if role == "runner" else signal.SIGINT)
    if not running.wait(lambda: recorded.rounds_told(running.text[said:]) > 0, HUNG_SECONDS):
        trial.unclean.append(f"hung: nothing was told for {HUNG_SECONDS:.0f} s")
        running.kill()
    told = running.text[said:]
    trial.told = next((line for line in told.splitlines() if "failed" in line or "stopped by" in line), "")
    trial.noticed = bool(recorded.failures(told)) or bool(running.process.poll())
    trial.unclean += running.wrong()
    return trial


def _untouched(running: Running) -> list[str]:
    """What was not as it must be in a run that has ended and was not hit: no visit to a cell may fail."""
    code = running.process.returncode
    found = [] if code == 0 else [f"ended with {code}: {' | '.join(running.text.splitlines()[-6:])}"]
    return found + [f"failed, and nothing was hit: {why}" for why in recorded.failures(running.text)] + _left(running)


def _left(running: Running) -> list[str]:
    """What a run that has ended left: what it may not, and then, for until then someone may write, what it stored."""
    code = running.process.returncode
    old = running.old if code else set()  # a run that has come to its end has removed what others left
    left = running.before.left(running.token, running.place.temporary, code == -signal.SIGKILL, old)
    return left + running.wrong() + running.place.wrong()


def _judge_end(running: Running, trials: list[Trial]) -> None:
    """What the end of a run says of its faults, and what it left."""
    last, code = trials[-1], running.process.returncode
    if not any("hung" in words for words in last.unclean):
        # A runner that is told to end may tell of one more visit, and another process be hit, before it has.
        ends = [each for each in trials if each.role in roles.ENDS_THE_RUN and each.kind != "continue"]
        ending = ends[-1] if ends else last
        last.unclean += recorded.ending_complaints(ending.role, ending.kind, code, running.text)
    last.unclean += _left(running)
    if code and not last.told:
        last.told = (running.text.strip().splitlines() or [""])[-1]
