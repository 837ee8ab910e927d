"""`lockstep tune`: a study of settings of one of the papers' networks, and how far a study has come."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lockstep.commands.ending import checking_arguments, clear_ends
from lockstep.commands.runner.errors import RunError

if TYPE_CHECKING:
    from lockstep.engine.training.loop import Site
    from lockstep.tuning.plan import StudyPlan

STORAGE = "study.db"


@clear_ends()
def tune_settings(
    space: Annotated[Path | None, typer.Option(help="File of the space, YAML or JSON.")] = None,
    use_case: Annotated[str, typer.Option(help="What is trained: Pneumonia, FaceMask, ...")] = "Pneumonia",
    trials: Annotated[int, typer.Option(help="Settings that are tried.")] = 30,
    epochs: Annotated[int, typer.Option(help="Of each trial, unless the pruner stops it.")] = 10,
    engines: Annotated[int, typer.Option(help="Trials at a time.")] = 2,
    workers_per_trial: Annotated[int, typer.Option(help="More than 1: each trial is trained data parallel.")] = 1,
    pruner: Annotated[str, typer.Option(help="Such as lstm, lstm:p=0.05, median, halving:factor=4, none.")] = "lstm",
    sampler: Annotated[str, typer.Option(help="tpe, random or cmaes.")] = "tpe",
    objective: Annotated[
        str, typer.Option(help="likelihood, accuracy, balanced_accuracy or auc, of held-out images.")
    ] = "likelihood",
    seed: Annotated[int, typer.Option(help="Of settings, weights and the order of images.")] = 0,
    hours: Annotated[float | None, typer.Option(help="Time limit of this call; the same call goes on.")] = None,
    launcher: Annotated[str, typer.Option(help="engines, processes or mpiexec.")] = "engines",
    storage: Annotated[str, typer.Option(help="A file on a disk of this machine, or a server's URL.")] = STORAGE,
    name: Annotated[str | None, typer.Option(help="Of the study; default: use case and space's file.")] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of real images; without it LOCKSTEP_DATA, else the synthetic stand-in.")
    ] = None,
    images: Annotated[int, typer.Option(min=0, help="Of the set, training and test together; 0: all.")] = 0,
    status: Annotated[bool, typer.Option("--status", help="Say how far the study is, and train nothing.")] = False,
) -> None:
    """Search the best setting: trials spread over engines, hopeless ones stopped early. The same command goes on."""
    if status:
        with checking_arguments():
            from lockstep.tuning.status_lines import study_status

            typer.echo(study_status(storage, name))
        return
    with checking_arguments():
        if space is None:
            raise RunError("--space is missing: name the file of a space, such as notebooks/spaces/convlstm.yaml")
        from lockstep.engine.job import Job
        from lockstep.engine.usecases import find_images
        from lockstep.engine.usecases import use_case as case_of
        from lockstep.tuning.plan import StudyPlan
        from lockstep.tuning.space import Space

        case = case_of(use_case)
        base = Job(experiment="tuning", use_case=use_case, memory_format="channels_last")  # as in 07: the faster one
        plan = StudyPlan(
            name or f"{use_case} {space.stem}", Space.read(space), base,
            trials, epochs, engines, launcher, workers_per_trial, sampler, pruner=pruner, seed=seed, hours=hours,
            objective=objective,
        )  # fmt: skip
        from lockstep.engine.training.loop import Site

        source = find_images(case, str(data_dir) if data_dir else None, images)
        plan = plan.lasting(base=plan.base.with_(data_source=source.kind, images=source.train_images))
        site = Site(data_root=source.root, skipped=source.skipped)
    _run(plan, storage, site)


def _run(plan: StudyPlan, storage: str, site: Site) -> None:
    from lockstep.tuning.opening import close_study, open_study
    from lockstep.tuning.status_lines import status_text
    from lockstep.tuning.study import run_study

    with checking_arguments():
        close_study(open_study(plan, storage, site))
    if plan.space.is_one_point:
        typer.echo("the space has only one setting: it runs once")
    found = run_study(plan, storage, site, typer.echo)
    typer.echo(status_text(found))
    if found.stopped:
        typer.echo(f"stopped: {found.stopped}; the same command goes on")
