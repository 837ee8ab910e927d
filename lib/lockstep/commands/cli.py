"""The `lockstep` command."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from lockstep.commands.data import data_app
from lockstep.commands.strategies import strategies

app = typer.Typer(
    help="Distributed deep learning, measured: run the notebooks, draw the figures, write the report.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(data_app, name="data", no_args_is_help=True)
app.command()(strategies)

Notebooks = Annotated[
    list[str], typer.Argument(help="Notebooks by number or name: 00 01 02. 00 measures nothing and runs last.")
]
Profile = Annotated[str | None, typer.Option(help="smoke | quick | long | full; values over the defaults.")]
Values = Annotated[
    list[str] | None, typer.Option("-p", "--parameter", metavar="NAME=VALUE", help="One value, as YAML; repeatable.")
]
DataDir = Annotated[
    Path | None, typer.Option(help="Folder of real images; without it LOCKSTEP_DATA, else the synthetic stand-in.")
]
Out = Annotated[Path | None, typer.Option(help="Run folder; without it results/runs/<profile>, or default.")]
Reference = Annotated[bool, typer.Option("--reference", help="Write to results/reference, which is committed.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="An unreadable photo stops the run; without it: left out and counted.")
]
Timeout = Annotated[int | None, typer.Option(help="Seconds that one notebook may take; no limit without it.")]
Results = Annotated[Path, typer.Option(help="Run folder, such as results/reference or results/runs/quick.")]
REFERENCE = Path("results/reference")


@app.command()
def run(
    notebooks: Notebooks,
    profile: Profile = None,
    parameter: Values = None,
    data_dir: DataDir = None,
    out: Out = None,
    reference: Reference = False,
    strict: Strict = False,
    timeout: Timeout = None,
) -> None:
    """Measure: run notebooks with their parameters and keep records, figures and the executed notebook.

    Notebook 00 shows the records of all others in the run folder, so it always runs after those named with it.
    """
    with _clear_ends():
        from lockstep.commands.runner import plan_runs, repository
        from lockstep.commands.runner.places import written

        root = repository()
        plans = plan_runs(
            notebooks,
            root,
            profile=profile,
            assignments=parameter or [],
            data_dir=data_dir,
            out=out,
            reference=reference,
            strict=strict,
            timeout_seconds=timeout,
        )
        from lockstep.commands.runner.execution import execute

        for plan in plans:
            execute(plan)
            if plan.measures:
                typer.echo(f"{plan.name}: results in {written(plan.folder, root)}")
            typer.echo(f"{plan.name}: executed notebook {written(plan.executed, root)}")


@app.command("notebooks")
def notebooks_command(
    names: Annotated[list[str] | None, typer.Argument(help="Notebooks by number or name; without it all.")] = None,
    timeout: Timeout = 900,
) -> None:
    """Re-execute the committed notebooks in place, from the stored results; nothing is trained."""
    with _clear_ends():
        from lockstep.commands.runner import find_notebook, notebooks, repository
        from lockstep.commands.runner.execution import refresh

        root = repository()
        for path in [find_notebook(name, root) for name in names] if names else notebooks(root):
            refresh(path, root, timeout)
            typer.echo(f"{path.stem}: refreshed")


@app.command()
def figures(results: Results = REFERENCE) -> None:
    """Draw the figures of a run anew, from its records alone."""
    with _clear_ends():
        from lockstep.analysis.figures.recipes import draw_all
        from lockstep.analysis.stored import read_stored
        from lockstep.experiments.registry import EXPERIMENTS, experiment

        root = _run_folder(results)
        for folder in _measured(root):
            if folder.name in EXPERIMENTS:
                paths = draw_all(experiment(folder.name).figures, read_stored(folder), folder / "figures")
                typer.echo(f"{folder.name}: {len(paths)} files in {folder / 'figures'}")


@app.command()
def report(
    results: Results = REFERENCE,
    out: Annotated[Path | None, typer.Option(help="File to write; without it the report goes to the screen.")] = None,
    fill: Annotated[Path | None, typer.Option(help="Markdown file whose generated tables are made anew.")] = None,
) -> None:
    """Published, measured and verdict side by side, from a run's records alone."""
    with _clear_ends():
        from lockstep.engine.files import write_atomically
        from lockstep.experiments.readme import fill_file
        from lockstep.experiments.report import report_all

        root = _run_folder(results)
        _measured(root)
        if fill is not None:
            fill_file(fill, root)
            typer.echo(f"report: tables of {fill}")
            return
        text = report_all(root)
        if out is None:
            typer.echo(text)
            return
        write_atomically(out, text.rstrip() + "\n")
        typer.echo(f"report: {out}")


@app.command()
def doctor() -> None:
    """Check this machine and this environment; each lack comes with its fix."""
    with _clear_ends():
        from lockstep.commands.doctor import check_all, show

        if not show(check_all(), Console()):
            raise typer.Exit(1)


def main() -> None:
    """Entry point. Ends with 2 if the command is refused, 1 if it fails, 128 + the signal's number if stopped."""
    app()


@contextlib.contextmanager
def _clear_ends() -> Iterator[None]:
    """Our own errors end a command with one message and no traceback; anything else is a bug and shows one."""
    from lockstep.commands.runner import RunError, RunFailed, Stopped

    try:
        yield
    except Stopped as error:
        raise _end(f"stopped by {error}; no process of the run is left", error.exit_code) from error
    except RunError as error:
        raise _end(f"refused: {error}", 2) from error
    except RunFailed as error:
        raise _end(str(error), 1) from error
    except ValueError as error:
        if not type(error).__module__.startswith("lockstep."):
            raise
        raise _end(f"error: {error}", 1) from error


def _run_folder(results: Path) -> Path:
    """A run folder as given, or below the repository when the command runs somewhere else in it."""
    from lockstep.commands.runner import RunError, repository

    folder = results if results.is_dir() else repository() / results
    if not folder.is_dir():
        raise RunError(
            f"--results {results} does not exist; `lockstep run` writes one, results/reference comes with the clone"
        )
    return folder


def _measured(root: Path) -> list[Path]:
    """The notebooks' folders that hold records. Raises RunError if there is none."""
    from lockstep.commands.runner import RunError

    folders = sorted(path.parent for path in root.glob("*/records.csv"))
    if not folders:
        raise RunError(f"{root} holds no records; `lockstep run 02 --profile smoke` measures some, see --results")
    return folders


def _end(message: str, code: int) -> typer.Exit:
    Console(stderr=True).print(Text.from_ansi(message), highlight=False, soft_wrap=True)
    return typer.Exit(code)


def _mpi_command() -> None:
    """`lockstep mpi` has a module of its own; its errors end like all others."""
    import functools

    from lockstep.commands.mpi import mpi

    @functools.wraps(mpi)
    def clear(**options: object) -> None:
        with _clear_ends():
            mpi(**options)  # type: ignore[arg-type]

    app.command()(clear)


_mpi_command()

if __name__ == "__main__":
    main()
