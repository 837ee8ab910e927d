"""From the command line's wishes to plans that will run: all checks stand here, before anything is started."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.files import WriteError, write_atomically
from lockstep.runner.errors import RunError
from lockstep.runner.parameters import (
    Parameter,
    check_values,
    parse_assignments,
    read_parameters,
    read_profile,
)
from lockstep.runner.places import find_notebook, notebooks, written

OURS = ("measure", "results", "data_dir")  # set by the runner


@dataclass(frozen=True)
class Plan:
    """One notebook with checked parameters, and where its run goes."""

    notebook: Path
    root: Path  # working folder of the kernel
    parameters: dict[str, Any]
    folder: Path  # of this notebook in the run folder: records.csv, run.json, figures/
    executed: Path  # the executed notebook; not in the reference results, which are committed
    timeout_seconds: int | None = None  # for the whole notebook

    @property
    def name(self) -> str:
        return self.notebook.stem


def plan_runs(
    names: Sequence[str],
    root: Path,
    *,
    profile: str | None = None,
    assignments: Sequence[str] = (),
    data_dir: Path | None = None,
    out: Path | None = None,
    reference: bool = False,
    timeout_seconds: int | None = None,
) -> list[Plan]:
    """A plan for each notebook; values: the notebook's default < profile < assignments (`name=value`, YAML).

    Nothing is run. Raises RunError for an unknown notebook, profile or parameter, a value of the wrong type, a
    missing data folder, or a run folder that can't be written.
    """
    if timeout_seconds is not None and timeout_seconds < 1:
        raise RunError(f"--timeout {timeout_seconds} is not possible; give seconds, at least 1")
    if out is not None and reference:
        raise RunError("--out and --reference name two run folders; give one of them")
    if data_dir is not None and not data_dir.is_dir():
        raise RunError(f"--data-dir {data_dir} is not a folder; data/README.md says where to get the images")
    run = root / "results" / "reference" if reference else out or root / "results" / "runs" / (profile or "default")
    values = _profile_values(profile, root)
    given = parse_assignments(list(assignments))
    chosen = list(dict.fromkeys(find_notebook(name, root) for name in names))
    plans = []
    for notebook in chosen:
        parameters = _parameters(notebook, values.get(notebook.stem, {}), given, profile)
        parameters |= _of_the_runner(notebook, run, data_dir, root)
        own = run.resolve() / notebook.stem
        beside = root / "results" / "runs" / "reference" / notebook.stem if reference else own
        plans.append(Plan(notebook, root, parameters, own, beside / "executed.ipynb", timeout_seconds))
    for plan in plans:
        _check_writable(plan.folder)
        _check_writable(plan.executed.parent)
    return plans


def _profile_values(profile: str | None, root: Path) -> dict[str, dict[str, Any]]:
    if profile is None:
        return {}
    values = read_profile(root / "notebooks" / "profiles" / f"{profile}.yaml")
    for name in values:
        if name not in {path.stem for path in notebooks(root)}:
            there = ", ".join(path.stem for path in notebooks(root)) or "none"
            raise RunError(f"profile {profile!r} speaks of a notebook {name!r} that does not exist; there are: {there}")
    return values


def _parameters(
    notebook: Path, from_profile: dict[str, Any], given: dict[str, Any], profile: str | None
) -> dict[str, Any]:
    known = read_parameters(notebook)
    for name in ("measure", "results"):
        if name not in known:
            raise RunError(f"{notebook.name} has no parameter {name!r}; every notebook needs measure and results")
    free: dict[str, Parameter] = {name: parameter for name, parameter in known.items() if name not in OURS}
    for name in OURS:
        if name in given or name in from_profile:
            raise RunError(f"{name} is set by the runner: use --out, --reference or --data-dir instead of -p {name}")
    values = check_values(from_profile, free, f"profile {profile}, {notebook.stem}")
    return values | check_values(given, free, f"-p for {notebook.stem}")


def _of_the_runner(notebook: Path, run: Path, data_dir: Path | None, root: Path) -> dict[str, Any]:
    values: dict[str, Any] = {"measure": True, "results": written(run, root)}
    if data_dir is not None:
        if "data_dir" not in read_parameters(notebook):
            raise RunError(f"{notebook.stem} takes no images, so --data-dir has no meaning for it; leave it out")
        values["data_dir"] = written(data_dir, root)
    return values


def _check_writable(folder: Path) -> None:
    probe = folder / ".probe"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(probe, b"\0" * 2**20)
    except WriteError as error:
        raise RunError(str(error)) from error
    except OSError as error:
        raise RunError(
            f"the run folder {folder} can't be made: {error.strerror or error}; give a folder you may write with --out"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
