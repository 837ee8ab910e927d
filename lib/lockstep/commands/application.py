"""The `lockstep` command, which `cli` starts.

A command checks what it is given before it imports what it needs: torch, pandas or matplotlib take seconds, and a
mistyped name should be told at once.
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Annotated

import typer

from lockstep import __version__
from lockstep.commands.advise import advise_on_model
from lockstep.commands.data import data_app
from lockstep.commands.ending import checking_arguments, clear_ends
from lockstep.commands.mpi import mpi
from lockstep.commands.runner.errors import RunError
from lockstep.commands.simulate import simulate_policies
from lockstep.commands.strategies import strategies
from lockstep.commands.tune import tune_settings
from lockstep.commands.why import why_slow
from lockstep.records.places import repository_root

app = typer.Typer(
    help="Distributed deep learning, measured: run the notebooks, draw the figures, write the report.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Notebooks = Annotated[
    list[str], typer.Argument(help="Notebooks by number or name: 00 01 02. 00 measures nothing and runs last.")
]
Profile = Annotated[str | None, typer.Option(help="smoke: does everything run? Every cell once, one short step.")]
Minutes = Annotated[
    float | None,
    typer.Option(
        help="Measure for so long, shared out over the notebooks; running it again goes on. Default: 10 each."
    ),
]
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
Timeout = Annotated[int | None, typer.Option(min=1, help="Seconds that one notebook may take; no limit without it.")]
Results = Annotated[Path, typer.Option(help="Run folder, such as results/reference or results/runs/quick.")]
REFERENCE = Path("results/reference")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lockstep {__version__}")
        raise typer.Exit


@app.callback()
def options_of_all(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    pass  # no docstring: the help of the application stands above


@app.command("run")
@clear_ends()
def run_notebooks(
    notebooks: Notebooks,
    minutes: Minutes = None,
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
    from lockstep.commands.runner.places import written
    from lockstep.commands.runner.plans import plan_runs

    with checking_arguments():
        root = repository_root()
        plans = plan_runs(
            notebooks,
            root,
            minutes=minutes,
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
@clear_ends()
def refresh_notebooks(
    names: Annotated[list[str] | None, typer.Argument(help="Notebooks by number or name; without it all.")] = None,
    timeout: Timeout = 900,
) -> None:
    """Re-execute the committed notebooks in place, from the stored results; nothing is trained."""
    from lockstep.commands.runner.places import find_notebook, notebooks

    with checking_arguments():
        root = repository_root()
        chosen = [find_notebook(name, root) for name in names] if names else notebooks(root)
    from lockstep.commands.runner.execution import refresh

    for path in chosen:
        refresh(path, root, timeout)
        typer.echo(f"{path.stem}: refreshed")


@app.command()
@clear_ends()
def figures(
    results: Results = REFERENCE,
    sheet: Annotated[bool, typer.Option("--sheet", help="Also all of them on one sheet, contact_sheet.png.")] = False,
) -> None:
    """Draw the figures of a run anew, from its records alone."""
    folders = _measured(results)
    from lockstep.analysis.figures.recipes import draw_all
    from lockstep.analysis.stored import read_stored
    from lockstep.experiments.registry import EXPERIMENTS, experiment

    # A figure's parts are many and live until it is saved: looking among them for garbage takes an eighth of the time.
    gc.set_threshold(50_000, 20, 20)
    for folder in folders:
        if folder.name in EXPERIMENTS:
            own = experiment(folder.name)
            paths = draw_all(own.figures, read_stored(folder).shown, folder / "figures", own.findings)
            typer.echo(f"{folder.name}: {len(paths)} files in {folder / 'figures'}")
    if sheet:
        from lockstep.analysis.figures.sheet import contact_sheet

        pictures = [path for folder in folders for path in sorted((folder / "figures").glob("*.png"))]
        typer.echo(f"all of them: {contact_sheet(pictures, folders[0].parent)}")


@app.command()
@clear_ends()
def report(
    results: Results = REFERENCE,
    out: Annotated[Path | None, typer.Option(help="File to write; without it the report goes to the screen.")] = None,
    fill: Annotated[Path | None, typer.Option(help="Markdown file whose generated tables are made anew.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same claims and answers for programs.")] = False,
) -> None:
    """Published, measured and answer side by side, from a run's records alone."""
    from lockstep.engine.files import write_atomically
    from lockstep.experiments.readme import fill_tables, read_page

    with checking_arguments():
        if out is not None and fill is not None:
            raise RunError(f"--out {out} and --fill {fill} ask for two different things; give one of them")
        if as_json and fill is not None:
            raise RunError(f"--json writes no Markdown, which --fill {fill} asks for; give one of them")
        if out is not None and not out.absolute().parent.is_dir():
            raise RunError(f"--out {out}: its folder does not exist; make it first")
        page = None if fill is None else read_page(fill)
        root = _measured(results)[0].parent
    if fill is not None and page is not None:
        write_atomically(fill, fill_tables(page, root))
        typer.echo(f"report: tables of {fill}")
        return
    from lockstep.experiments.report import report_all, report_json

    text = report_json(root) if as_json else report_all(root)
    if out is None:
        typer.echo(text)
        return
    write_atomically(out, text.rstrip() + "\n")
    typer.echo(f"report: {out}")


@app.command()
@clear_ends()
def doctor() -> None:
    """Check this machine and this environment; each lack comes with its fix. Ends with 1 if something is lacking."""
    from lockstep.commands.doctor import check_all, show

    if not show(check_all()):
        raise typer.Exit(1)


app.command("advise")(advise_on_model)
app.command()(mpi)
app.command()(strategies)
app.command("simulate")(simulate_policies)
app.command("tune")(tune_settings)
app.command("why")(why_slow)
app.add_typer(data_app, name="data", no_args_is_help=True)


def _measured(results: Path) -> list[Path]:
    """The notebooks' folders of a run that hold records; the run's folder as given, or below the repository when the
    command runs somewhere else in it. Raises RunError if there is none."""
    with checking_arguments():
        root = results if results.is_dir() else repository_root() / results
        if not root.is_dir():
            raise RunError(
                f"--results {results} does not exist; `lockstep run` writes one, results/reference comes with the clone"
            )
        folders = sorted(path.parent for path in root.glob("*/records.csv"))
        if not folders:
            raise RunError(f"{root} holds no records; `lockstep run 02 --profile smoke` measures some, see --results")
        return folders
