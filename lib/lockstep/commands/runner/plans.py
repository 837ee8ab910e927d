"""From the command line's wishes to plans that will run: all checks stand here, before anything is started."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockstep.commands.runner.errors import RunError
from lockstep.commands.runner.parameters import check_names, check_values, parse_assignments, read_profile
from lockstep.commands.runner.places import find_notebook, notebooks, reads_the_others, written
from lockstep.engine.files import WriteError, write_atomically
from lockstep.experiments.parameters import Parameter, read_parameters

OURS = ("measure", "results", "data_dir", "strict")  # set by the runner
Known = dict[str, Parameter]
"""What a notebook's cell of parameters holds."""


@dataclass(frozen=True)
class RunPlan:
    """One notebook with checked parameters, and where its run goes."""

    notebook: Path
    root: Path  # working folder of the kernel
    parameters: dict[str, Any]
    folder: Path  # of this notebook in the run folder: records.csv, run.json, figures/
    executed: Path  # the executed notebook; not in the reference results, which are committed
    timeout_seconds: int | None = None  # for the whole notebook
    measures: bool = True  # notebook 00 writes no records: only `executed`
    environment: dict[str, str] = field(default_factory=dict)  # of the kernel, beside the caller's

    @property
    def name(self) -> str:
        return self.notebook.stem


def plan_runs(
    names: Sequence[str],
    root: Path,
    *,
    minutes: float | None = None,
    profile: str | None = None,
    assignments: Sequence[str] = (),
    data_dir: Path | None = None,
    out: Path | None = None,
    reference: bool = False,
    strict: bool = False,
    timeout_seconds: int | None = None,
) -> list[RunPlan]:
    """A plan for each notebook, 00 last; values: the notebook's default < profile < assignments (`name=value`, YAML).

    An assignment reaches those notebooks that have the parameter; `minutes` are shared out evenly over those that
    measure. Nothing is run. Raises RunError or
    ParameterError for an unknown notebook, profile or parameter, a value of the wrong type, a missing data folder, an
    option that none of the notebooks has a use for, or a run folder that can't be written.
    """
    _check_options(data_dir, out, reference)
    _check_minutes(minutes, profile)
    run = root / "results" / "reference" if reference else out or root / "results" / "runs" / (profile or "default")
    values = _profile_values(profile, root)
    chosen = list(dict.fromkeys(find_notebook(name, root) for name in names))
    known = {notebook: read_parameters(notebook) for notebook in chosen}
    given = _given(assignments, known)
    environment = _environment(data_dir, known)
    wishes = _wishes(data_dir, strict, known, root)
    share = None if minutes is None else minutes / max(1, sum("minutes" in own for own in known.values()))
    plans = []
    for notebook in sorted(chosen, key=reads_the_others):
        parameters = _parameters(notebook, known[notebook], values.get(notebook.stem, {}), given, profile)
        parameters |= {"measure": True, "results": written(run, root)}
        parameters |= {name: value for name, value in wishes.items() if name in known[notebook]}
        parameters |= {"minutes": share} if share is not None and "minutes" in known[notebook] else {}
        measures = not reads_the_others(notebook)
        own = run.resolve() / notebook.stem
        beside = root / "results" / "runs" / "reference" / notebook.stem if reference else own
        folder = own if measures else beside
        executed = beside / "executed.ipynb"
        plans.append(RunPlan(notebook, root, parameters, folder, executed, timeout_seconds, measures, environment))
    for plan in plans:
        _check_writable(plan.folder)
        _check_writable(plan.executed.parent)
    return plans


def _check_options(data_dir: Path | None, out: Path | None, reference: bool) -> None:
    if out is not None and reference:
        raise RunError("--out and --reference name two run folders; give one of them")
    if data_dir is not None and not data_dir.is_dir():
        raise RunError(f"--data-dir {data_dir} is not a folder; data/README.md says where to get the images")


def _check_minutes(minutes: float | None, profile: str | None) -> None:
    if minutes is None:
        return
    if not 0 < minutes < float("inf"):
        raise RunError(f"--minutes {minutes:g} is not possible; give a number above 0, such as --minutes 10")
    if profile is not None:
        raise RunError(f"--minutes {minutes:g} does nothing with --profile {profile}, which says how much to measure")


def _profile_values(profile: str | None, root: Path) -> dict[str, dict[str, Any]]:
    if profile is None:
        return {}
    if Path(profile).name != profile:
        raise RunError(f"--profile {profile!r} is a path; give the name of a file in notebooks/profiles without .yaml")
    values = read_profile(root / "notebooks" / "profiles" / f"{profile}.yaml")
    for name in values:
        if name not in {path.stem for path in notebooks(root)}:
            there = ", ".join(path.stem for path in notebooks(root)) or "none"
            raise RunError(f"profile {profile!r} speaks of a notebook {name!r} that does not exist; there are: {there}")
    return values


def _parameters(
    notebook: Path, known: Known, from_profile: dict[str, Any], given: dict[str, Any], profile: str | None
) -> dict[str, Any]:
    for name in ("measure", "results"):
        if name not in known:
            raise RunError(f"{notebook.name} has no parameter {name!r}; every notebook needs measure and results")
    free = _free(known)
    _refuse_ours(from_profile)
    values = check_values(from_profile, free, f"profile {profile}, {notebook.stem}")
    own = {name: value for name, value in given.items() if name in free}
    return values | check_values(own, free, f"-p for {notebook.stem}")


def _given(assignments: Sequence[str], known: Mapping[Path, Known]) -> dict[str, Any]:
    """What -p sets, in those notebooks that have the parameter. Raises RunError if none has."""
    given = parse_assignments(list(assignments))
    _refuse_ours(given)
    check_names(given, {notebook.stem: _free(own) for notebook, own in known.items()}, "-p")
    return given


def _free(known: Known) -> Known:
    return {name: parameter for name, parameter in known.items() if name not in OURS}


def _refuse_ours(names: Iterable[str]) -> None:
    for name in names:
        if name in OURS:
            raise RunError(
                f"{name} is set by the runner: use --out, --reference, --data-dir or --strict instead of -p {name}"
            )


def _environment(data_dir: Path | None, known: Mapping[Path, Known]) -> dict[str, str]:
    """LOCKSTEP_DATA as the caller's shell means it: the kernel works in the repository's root.

    In the environment, since a parameter would stand in the executed notebook. Raises RunError if images would be
    read there and it is not a folder.
    """
    named = os.environ.get("LOCKSTEP_DATA")
    if not named:
        return {}
    needed = data_dir is None and any("data_dir" in own for own in known.values())
    if needed and not Path(named).is_dir():
        raise RunError(
            f"LOCKSTEP_DATA={named} is not a folder, seen from {Path.cwd()}; name one that exists, give another with "
            "--data-dir, or `unset LOCKSTEP_DATA` for the synthetic stand-in"
        )
    return {"LOCKSTEP_DATA": str(Path(named).resolve())}


def _wishes(data_dir: Path | None, strict: bool, known: Mapping[Path, Known], root: Path) -> dict[str, Any]:
    """What --data-dir and --strict set, in those notebooks that have the parameter. Raises RunError if none has."""
    wishes: dict[str, Any] = {} if data_dir is None else {"data_dir": written(data_dir, root)}
    wishes |= {"strict": True} if strict else {}
    for name in wishes:
        if not any(name in own for own in known.values()):
            option, named = "--" + name.replace("_", "-"), ", ".join(notebook.stem for notebook in known)
            raise RunError(
                f"{option} has no meaning for {named}: no images are read there (no parameter {name!r}); leave it out"
            )
    return wishes


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
