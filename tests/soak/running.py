"""The command: so many faults, or so many minutes of them; a line for each, a table, and a file of all."""

from __future__ import annotations

import argparse
import csv
import dataclasses
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from soak.faults import KINDS, draw, notebook_of
from soak.notebooks import NOTEBOOKS, build
from soak.trial import Place, Trial, disturbed, undisturbed

MOST_FAULTS_OF_A_RUN = 8
MOST_RUNS_OF_A_FOLDER = 4  # that are disturbed; then one runs to its end


def main(words: Sequence[str] | None = None) -> int:
    """0 if every trial was clean, 1 if one was not or there was none, 2 for a wrong option."""
    chosen = _options().parse_args(words)
    for number in (signal.SIGINT, signal.SIGTERM):
        # Also where a shell has started this in the background, deaf to Ctrl-C: so would be all that is hit.
        signal.signal(number, signal.default_int_handler)
    folder = Path(chosen.out or tempfile.mkdtemp(prefix="soak-")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + 60 * chosen.minutes
    root = build(Path(tempfile.mkdtemp(prefix="soak-repository-")))
    trials: list[Trial] = []
    others: list[str] = []
    try:
        _soak(chosen, root, folder, ends, trials, others)
    except KeyboardInterrupt:
        others.append("the soak was interrupted")
    finally:
        shutil.rmtree(root, ignore_errors=True)
    if not trials:
        others.append("no fault was dealt")
    _write(folder / "trials.csv", trials)
    print(table(trials))
    for said in others:
        print(f"not clean: {said}")
    unclean = sum(bool(trial.unclean) for trial in trials)
    dealt = f"{len(trials)} of {chosen.trials} faults with seed {chosen.seed}"
    print(f"{dealt}, {unclean} not clean; all trials: {folder / 'trials.csv'}")
    return int(bool(unclean or others))


def _options() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser("python -m tests.soak", description=__doc__)
    options.add_argument("--trials", type=int, default=200, help="faults")
    options.add_argument("--minutes", type=float, default=30.0, help="no run begins after so many")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--run", type=int, default=0, help="the first run's number: to see one again")
    options.add_argument("--only", nargs="+", choices=list(NOTEBOOKS), default=list(NOTEBOOKS), help="notebooks")
    options.add_argument("--out", default="", help="folder of the results; by default a new temporary one")
    return options


def _soak(
    chosen: argparse.Namespace, root: Path, folder: Path, ends: float, trials: list[Trial], others: list[str]
) -> None:
    """Add the trials, and to `others` what was wrong with runs, or parts of runs, that nothing had hit."""
    places: dict[str, Place] = {}
    disturbances: Counter[Path] = Counter()
    weights = {number: NOTEBOOKS[number].weight for number in chosen.only}

    def whole(place: Place, name: str) -> None:
        found = undisturbed(place, folder / f"{name}.log")
        others.extend(f"{place.number} ({name}): {words}" for words in found)

    run = chosen.run
    while len(trials) < chosen.trials and time.monotonic() < ends:
        number = notebook_of(chosen.seed, run, weights)
        if number not in places:
            temporary = root / "tmp" / number
            temporary.mkdir(parents=True)
            places[number] = Place(number, root, temporary)
            whole(places[number], f"first-{number}")
            print(f"{number}: an undisturbed run takes {places[number].length_seconds:.0f} s", flush=True)
        place = places[number]
        faults = draw(chosen.seed, run, min(MOST_FAULTS_OF_A_RUN, chosen.trials - len(trials)), place.length_seconds)
        found, untouched = disturbed(place, folder / f"run-{run}.log", run, faults)
        trials += found
        others.extend(f"{number} (run {run}): {words}" for words in untouched)
        for trial in found:
            print(_line(trial), flush=True)
        disturbances[place.out] += 1
        if disturbances[place.out] >= MOST_RUNS_OF_A_FOLDER:
            whole(place, f"after-{run}")
        run += 1
    for place in places.values():
        if disturbances[place.out]:
            whole(place, f"last-{place.number}")


def _line(trial: Trial) -> str:
    state = "NOT CLEAN: " + "; ".join(trial.unclean) if trial.unclean else "clean"
    told = f" ({trial.told[:110]})" if trial.told else ""
    return f"run {trial.run}, {trial.notebook}, {trial.seconds:6.1f} s: {trial.kind} {trial.role}: {state}{told}"


def table(trials: Sequence[Trial]) -> str:
    """Kind x target: faults, how many of them were not clean, and of how many the run told nothing.

    A rank that is killed while its warm team waits for work is missed by nobody; if most are not, a run may be lying.
    """
    counted = Counter((trial.role, trial.kind) for trial in trials)
    unclean = Counter((trial.role, trial.kind) for trial in trials if trial.unclean)
    unnoticed = Counter((trial.role, trial.kind) for trial in trials if not trial.noticed)
    lines = [f"{'faults (not clean, not noticed)':32}" + "".join(f"{kind:>12}" for kind in KINDS)]
    for role in sorted({trial.role for trial in trials}):
        of = [(role, kind) for kind in KINDS]
        cells = [f"{counted[each]} ({unclean[each]}, {unnoticed[each]})" if counted[each] else "-" for each in of]
        lines.append(f"{role:32}" + "".join(f"{cell:>12}" for cell in cells))
    return "\n".join(lines)


def _write(path: Path, trials: Sequence[Trial]) -> None:
    with path.open("w", newline="") as stream:
        rows = csv.DictWriter(stream, [each.name for each in dataclasses.fields(Trial)])
        rows.writeheader()
        rows.writerows({**vars(trial), "unclean": "; ".join(trial.unclean)} for trial in trials)


if __name__ == "__main__":
    sys.exit(main())
