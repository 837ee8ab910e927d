"""`lockstep data make` writes the synthetic stand-in; `lockstep data check` says what is in a folder of photos."""

from __future__ import annotations

import os
import statistics
import textwrap
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from lockstep.commands.ending import checking_arguments, clear_ends, printable
from lockstep.commands.runner.errors import RunError, RunFailed

if TYPE_CHECKING:
    from lockstep.engine.data.inspection import Inspection

data_app = typer.Typer(help="Look at a folder of photos before training on it, or write the synthetic stand-in.")

SHOWN = 10  # unreadable photos that are named, with their reasons
_MODES = {"L": "grey", "RGB": "RGB", "P": "palette", "1": "black and white", "I;16": "16-bit grey", "LA": "grey, alpha"}


@data_app.command("make")
@clear_ends()
def make_stand_in(
    dataset: Annotated[str, typer.Option(help="Which data set it stands for.")] = "fire-smoke",
    images: Annotated[
        int | None, typer.Option(help="Photos, training and test together.", show_default="791, or a paper's count")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Root to write its folder into; without it where runs look for it themselves.")
    ] = None,
) -> None:
    """Write the synthetic stand-in: JPEG files with a photo's decoding cost, in the layout of a real set."""
    from lockstep.engine.data.synthetic import STAND_INS, counts_for, ensure_stand_in, stand_in_root, write_stand_in

    with checking_arguments():
        if dataset not in STAND_INS:
            raise RunError(f"--dataset {dataset} has no stand-in; there is one for: {', '.join(STAND_INS)}")
        images = STAND_INS[dataset].images if images is None else images
        counts = counts_for(images, STAND_INS[dataset].classes)
        root = stand_in_root(images) if out is None else out.expanduser()
        folder = root / dataset
        stood = folder.exists()
        if out is not None and stood:
            raise RunError(f"{folder} exists already, and nothing is overwritten; remove it or give another --out")
    if out is None:
        ensure_stand_in(dataset, images)
    else:
        write_stand_in(root, dataset, counts)
    size = sum(path.stat().st_size for path in folder.rglob("*.jpg"))
    train, test = (sum(counts[split].values()) for split in ("train", "test"))
    typer.echo(f"{'stands there already' if stood else 'written'}: {folder}")
    typer.echo(f"{images} synthetic photos ({train} to train, {test} to test), {decimal(size, precision=2)}")
    typer.echo("a run without --data-dir finds it" if out is None else f"use it with --data-dir {root}")


@data_app.command("check")
@clear_ends()
def check_data_sets(
    folder: Annotated[
        Path, typer.Argument(exists=True, file_okay=False, help="A data set's folder, or a root that holds several.")
    ],
    strict: Annotated[bool, typer.Option("--strict", help="Refuse a set that has any unreadable photo.")] = False,
) -> None:
    """Decode every photo once; say what is there, what is wrong with it, and what to do.

    Ends with 0 if training takes it (perhaps with warnings), 1 if training would refuse it, 2 for a wrong command.
    """
    from lockstep.engine.data.folders import LAYOUT, subfolders
    from lockstep.engine.data.inspection import data_sets, inspect_set

    found = data_sets(folder)
    if not found:
        raise RunFailed(f"{folder} holds no data set; lay one out as {LAYOUT}, see data/README.md")
    others = [] if folder in found else [path.name for path in subfolders(folder).values() if path not in found]
    console = Console(highlight=False, markup=False, emoji=False)
    good = True
    for place, path in enumerate(found):
        if place:
            console.print()
        inspection = inspect_set(path, strict)
        _show(inspection, path, console)
        good = good and not inspection.refused
    if others:
        console.print(f"\nleft alone, no class folders in them: {printable(', '.join(others))}", soft_wrap=True)
    if not good:
        raise typer.Exit(1)


def _show(found: Inspection, path: Path, console: Console) -> None:
    """The report of one data set."""
    console.print(Text.assemble((printable(found.folder.name), "bold"), f"  {printable(str(path))}"), soft_wrap=True)
    if found.listed:
        console.print(_counts(found))
        console.print(_facts(found))
    unreadable = [(where, why) for of_split in found.unreadable.values() for where, why in of_split.items()]
    for where, why in unreadable[:SHOWN]:
        console.print(f"   {printable(where)}: {printable(why)}", soft_wrap=True)
    if len(unreadable) > SHOWN:
        console.print(f"   and {len(unreadable) - SHOWN} more")
    console.print()
    for sign, remarks, style in (("-", found.cautions, ""), ("!", found.refused, "red")):
        for remark in remarks:
            console.print(Text(_wrapped(f" {sign} ", remark, console.width), style), soft_wrap=True)
    console.print(_verdict(found), soft_wrap=True)


def _wrapped(start: str, text: str, width: int) -> str:
    """Lines below each other; a path is never broken in two, so that it can be copied."""
    return textwrap.fill(
        printable(text), width, initial_indent=start, subsequent_indent=" " * len(start),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _verdict(found: Inspection) -> Text:
    if found.refused:
        count = len(found.refused)
        return Text(
            f"Training would refuse it: mend {'this' if count == 1 else f'these {count}'} and check again.", "red"
        )
    counts = Counter(photo.split for photo in found.photos)
    takes = f"Usable: {counts['train']} photos to train, {counts['test']} to test"
    if found.cautions:
        return Text(f"{takes}; read the remarks above first.", "yellow")
    return Text(f"{takes}. Nothing to mend.", "green")


def _counts(found: Inspection) -> Table:
    """Photos by class and split, those that can't be read included."""
    table = Table(box=box.SIMPLE_HEAD, show_footer=True, pad_edge=True)
    splits = [split for split in ("train", "test") if split in found.listed]
    every = [sum(found.listed[split].values()) for split in splits]
    table.add_column("class", footer="all", overflow="fold")
    for split, total in zip(splits, every, strict=True):
        table.add_column(split, footer=str(total), justify="right")
    table.add_column("all", footer=str(sum(every)), justify="right")
    for name in found.classes:
        of_class = [found.listed[split].get(name, 0) for split in splits]
        table.add_row(Text(printable(name)), *(str(count) for count in of_class), str(sum(of_class)))
    return table


def _facts(found: Inspection) -> Table:
    table = Table(box=None, show_header=False, pad_edge=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _named_facts(found).items():
        table.add_row(name, Text(value))
    return table


def _named_facts(found: Inspection) -> dict[str, str]:
    """Name and value of what is worth a line."""
    from lockstep.engine.data.inspection import copies

    sizes = [photo.size_bytes for photo in found.photos]
    sides = [min(photo.look.width, photo.look.height) for photo in found.photos]
    modes = Counter(_MODES.get(photo.look.mode, photo.look.mode) for photo in found.photos)
    twice = copies(found.photos)
    unreadable = sum(len(of_split) for of_split in found.unreadable.values())
    lines = {}
    if found.photos:
        whole, mean = (decimal(round(size), precision=2) for size in (sum(sizes), statistics.mean(sizes)))
        lines["bytes"] = f"{whole}, {mean} a photo on average"
        lines["short side"] = f"{min(sides)} / {statistics.median_low(sides)} / {max(sides)} pixels (least/median/most)"
        lines["colours"] = ", ".join(f"{mode} {count}" for mode, count in modes.most_common())
        within = ", ".join(f"{count} in {split}" for split, count in twice.within.items() if count)
        lines["copies within"] = within or "none with the same pixels"
        lines["copies across"] = f"{twice.across} of test, in train too" if twice.across else "none"
        pictures = {0: "no picture", 1: "1 picture"}.get(twice.two_labels, f"{twice.two_labels} pictures")
        lines["two classes"] = f"{pictures} in more than one"
    if found.imbalance:
        lines["balance"] = f"{found.imbalance:.1f} : 1 (largest : smallest class in train)"
    lines["unreadable"] = f"{unreadable}, links among them: {len(found.links)}" if unreadable else "none"
    if others := _other_endings(found.folder):
        kinds = ", ".join(
            f"{count} {printable(ending)}"
            for ending, count in sorted(others.items(), key=lambda each: (-each[1], each[0]))
        )
        lines["other files"] = f"{kinds}: no photos by their names"
    if found.left_alone:
        lines["left alone"] = ", ".join(printable(name) for name in found.left_alone)
    return lines


def _other_endings(folder: Path) -> Counter[str]:
    """How many files beside the photos there are in the folders of a data set, by ending: they are not looked at."""
    from lockstep.engine.data.folders import photo_names

    found: Counter[str] = Counter()
    for place, _, names in os.walk(folder):
        photos = set(photo_names(Path(place))) if Path(place) != folder else set(names)
        others = [name for name in names if name not in photos and not name.startswith(".")]
        found.update(Path(name).suffix.lower() or "without ending" for name in others)
    return found
