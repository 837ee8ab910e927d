"""The command: so many faults, or so many minutes of them; a line for each, a table, and a file of all."""

from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from soak.faults import KINDS, draw, notebook_of
from soak.notebooks import NOTEBOOKS, build
from soak.phases import PHASES
from soak.trial import Halted, Place, Trial, disturbed, undisturbed

LANES = 3
"""Runs side by side, each with notebooks, folders and temporary files of its own: while one waits, another works."""


def main(words: Sequence[str] | None = None) -> int:
    """0 if every trial was clean, 1 if one was not or there were fewer than asked for, 2 for a wrong option."""
    chosen = _options().parse_args(words)
    for number in (signal.SIGINT, signal.SIGTERM):
        # Also where a shell has started this in the background, deaf to Ctrl-C: so would be all that is hit.
        signal.signal(number, signal.default_int_handler)
    folder = Path(chosen.out or tempfile.mkdtemp(prefix="soak-")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    soak = Soak(chosen, folder, build(Path(tempfile.mkdtemp(prefix="soak-repository-"))))
    try:
        soak.run()
    except KeyboardInterrupt:
        soak.others.append("the soak was interrupted")
    finally:
        shutil.rmtree(soak.root, ignore_errors=True)
    if not soak.trials:
        soak.others.append("no fault was dealt")
    _write(folder / "trials.csv", soak.trials)
    print(table(soak.trials))
    print(of_phases(soak.trials))
    print(of_notebooks(soak.trials))
    for said in soak.others:
        print(f"not clean: {said}")
    if few := len(soak.trials) < chosen.trials:
        told = f"{len(soak.trials)} of {chosen.trials} faults were dealt in {chosen.minutes:g} minutes"
        print(f"too few: {told}; give more minutes (make soak MINUTES=60), or ask for fewer faults with --trials")
    unclean = sum(bool(trial.unclean) for trial in soak.trials)
    dealt = f"{len(soak.trials)} of {chosen.trials} faults with seed {chosen.seed}"
    print(f"{dealt}, {unclean} not clean; all trials: {folder / 'trials.csv'}")
    return int(bool(unclean or soak.others or few))


def _options() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser("python -m tests.soak", description=__doc__)
    options.add_argument("--trials", type=int, default=200, help="faults")
    options.add_argument("--minutes", type=float, default=30.0, help="no run begins after so many")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--run", type=int, default=0, help="the first run's number: to see one again")
    options.add_argument("--only", nargs="+", choices=list(NOTEBOOKS), default=list(NOTEBOOKS), help="notebooks")
    options.add_argument("--lanes", type=int, choices=range(1, 7), default=LANES, help="runs side by side")
    options.add_argument("--out", default="", help="folder of the results; by default a new temporary one")
    return options


class Soak:
    """All runs of one soak, some side by side."""

    def __init__(self, chosen: argparse.Namespace, folder: Path, root: Path) -> None:
        self.chosen, self.folder, self.root = chosen, folder, root
        self.ends = time.monotonic() + 60 * chosen.minutes
        self.trials: list[Trial] = []
        self.others: list[str] = []  # what was wrong with runs, or parts of runs, that nothing had hit
        self.halt = threading.Event()
        self._lock = threading.Lock()
        self._next_run, self._promised = chosen.run, 0

    def run(self) -> None:
        """Deal the faults. KeyboardInterrupt: after every run has been ended."""
        lanes = [self.chosen.only[lane :: self.chosen.lanes] for lane in range(self.chosen.lanes)]
        with ThreadPoolExecutor(len(lanes)) as threads:
            done = [threads.submit(self._lane, numbers) for numbers in lanes if numbers]
            try:
                for each in done:
                    each.result()
            except BaseException:
                self.halt.set()
                raise

    def _lane(self, numbers: Sequence[str]) -> None:
        """One run after the other of these notebooks, which no other lane runs."""
        weights = {number: NOTEBOOKS[number].weight for number in numbers}
        places: dict[str, Place] = {}
        with contextlib.suppress(Halted):
            while (granted := self._begin()) is not None:
                run, most = granted
                number = notebook_of(self.chosen.seed, run, weights)
                dealt = self._deal(places, number, run, min(most, NOTEBOOKS[number].faults))
                self._dealt(most, dealt)
            for place in places.values():
                self._whole(place, f"last-{place.number}")

    def _begin(self) -> tuple[int, int] | None:
        """The next run's number, and how many faults it may be dealt; None at the end."""
        with self._lock:
            left = self.chosen.trials - len(self.trials) - self._promised
            if left <= 0 or time.monotonic() >= self.ends:
                return None
            most = min(left, max(small.faults for small in NOTEBOOKS.values()))
            self._promised += most
            self._next_run += 1
            return self._next_run - 1, most

    def _dealt(self, most: int, found: Sequence[Trial]) -> None:
        with self._lock:
            self._promised -= most
            self.trials += found
        for trial in found:
            print(_line(trial), flush=True)

    def _deal(self, places: dict[str, Place], number: str, run: int, most: int) -> list[Trial]:
        """What a run of a notebook made of its faults."""
        if number not in places:
            temporary = self.root / "tmp" / number
            temporary.mkdir(parents=True)
            places[number] = Place(number, self.root, temporary, halt=self.halt)
        place = places[number]
        faults = draw(self.chosen.seed, run, most)
        found, untouched = disturbed(place, self.folder / f"run-{run}.log", run, faults)
        self.others.extend(f"{number} (run {run}): {words}" for words in untouched)
        return found

    def _whole(self, place: Place, name: str) -> None:
        """An undisturbed run, which goes on where those that were hit have ended."""
        found = undisturbed(place, self.folder / f"{name}.log")
        self.others.extend(f"{place.number} ({name}): {words}" for words in found)


def _line(trial: Trial) -> str:
    state = "NOT CLEAN: " + "; ".join(trial.unclean) if trial.unclean else "clean"
    told = f" ({trial.told[:110]})" if trial.told else ""
    where = f"{trial.notebook}, {trial.seconds:6.1f} s, {trial.phase}"
    return f"run {trial.run}, {where}: {trial.kind} {trial.role}: {state}{told}"


def table(trials: Sequence[Trial]) -> str:
    """Kind x target: faults, how many of them were not clean, and of how many the run told nothing.

    A rank that is killed while its warm team waits for work is missed by nobody; if most are not, a run may be lying.
    """
    return _crossed(trials, lambda trial: trial.role, sorted({trial.role for trial in trials}))


def of_phases(trials: Sequence[Trial]) -> str:
    """The same by what the run was doing; phases in which no fault was dealt stand there, too."""
    return _crossed(trials, lambda trial: trial.phase, PHASES)


def _crossed(trials: Sequence[Trial], of: Callable[[Trial], str], rows: Sequence[str]) -> str:
    counted = Counter((of(trial), trial.kind) for trial in trials)
    unclean = Counter((of(trial), trial.kind) for trial in trials if trial.unclean)
    unnoticed = Counter((of(trial), trial.kind) for trial in trials if not trial.noticed)
    lines = [f"{'faults (not clean, not noticed)':32}" + "".join(f"{kind:>12}" for kind in KINDS)]
    for row in rows:
        own = [(row, kind) for kind in KINDS]
        cells = [f"{counted[each]} ({unclean[each]}, {unnoticed[each]})" if counted[each] else "-" for each in own]
        lines.append(f"{row:32}" + "".join(f"{cell:>12}" for cell in cells))
    return "\n".join(lines)


def of_notebooks(trials: Sequence[Trial]) -> str:
    """Faults of each notebook, and how many of them were not clean."""
    found = Counter(trial.notebook for trial in trials)
    unclean = Counter(trial.notebook for trial in trials if trial.unclean)
    return "; ".join(f"{number}: {found[number]} ({unclean[number]})" for number in sorted(found))


def _write(path: Path, trials: Sequence[Trial]) -> None:
    with path.open("w", newline="") as stream:
        rows = csv.DictWriter(stream, [each.name for each in dataclasses.fields(Trial)])
        rows.writeheader()
        rows.writerows({**vars(trial), "unclean": "; ".join(trial.unclean)} for trial in trials)


if __name__ == "__main__":
    sys.exit(main())
