"""`lockstep strategies`: every strategy, what it does, what it preserves, its options, and where it runs."""

from __future__ import annotations

import difflib
import json
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lockstep.commands.ending import clear_ends
from lockstep.commands.runner.errors import RunError

if TYPE_CHECKING:
    from lockstep.engine.declared import Declared
    from lockstep.engine.options import Option

Entry = dict[str, Any]
WORKERS = 4
"""The number of workers for which a strategy is said to equal sequential training or not."""
_TITLES = {
    "strategies": "Strategies: the names of rows in notebooks, for a launcher, a sync and its options",
    "syncs": "Syncs and peers: how replicas agree (`sync`)",
    "policies": "Policies: whose contributions make up a server's next update (`policy`)",
    "launchers": "Launchers: where workers run (`launcher`)",
}


@clear_ends()
def strategies(
    names: Annotated[
        list[str] | None, typer.Argument(help="Show these only: rows, syncs, policies, launchers.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """List every strategy: what it does, what it preserves, its options, and where it runs."""
    found = described()
    if names:
        known = {entry["name"] for entries in found.values() for entry in entries}
        for name in names:
            if name not in known:
                close = difflib.get_close_matches(name, sorted(known), n=1)
                meant = f"did you mean {close[0]}? " if close else ""
                raise RunError(f"strategy {name!r} does not exist; {meant}`lockstep strategies` lists all there are")
        found = {kind: [entry for entry in entries if entry["name"] in names] for kind, entries in found.items()}
    typer.echo(json.dumps(found, indent=2) if as_json else "\n".join(_text(found)))


def described() -> dict[str, list[Entry]]:
    """All rows, syncs (peers among them), policies and launchers, as plain data."""
    from lockstep.engine import registry
    from lockstep.engine.job.strategies import STRATEGIES
    from lockstep.engine.options import options_of
    from lockstep.engine.policies import POLICIES

    where = registry.launchers()
    return {
        "strategies": [_row(name) for name in STRATEGIES],
        "syncs": [
            _entry(name, sync)
            | {"preserves": sync.preserves, "runs_on": [each for each in where if sync.runs_on(each, where[each])]}
            for name, sync in registry.syncs_and_peers().items()
        ],
        "policies": [
            _entry(name, policy) | {"options": [_option(option) for option in options_of(policy.Options).values()]}
            for name, policy in POLICIES.items()
        ],
        "launchers": [_entry(name, launcher) for name, launcher in where.items()],
    }


def _row(name: str) -> Entry:
    """A row of the table of strategies. Where it runs is what the checks of a job say."""
    from lockstep.engine import registry
    from lockstep.engine.job import Job
    from lockstep.engine.job.strategies import PER_WORKER, STRATEGIES

    row = STRATEGIES[name]
    declared = registry.sync_of(row.fields["sync"])
    assert declared is not None
    values: dict[str, Any] = {option.name: option.default for option in Job.options().values()} | row.fields
    values["workers"] = WORKERS if row.distributed else 1
    if values["shards"] == PER_WORKER:
        values["shards"] = WORKERS
    return {
        "name": name,
        "label": row.label,
        "does": declared.does,
        "fields": {key: "one per worker" if value == PER_WORKER and key == "shards" else value
                   for key, value in row.fields.items()},
        "equals_sequential": str(declared.equality(values)),
        "options": [_option(option) for option in declared.options],
        "runs_on": [launcher for launcher in registry.LAUNCHERS if _is_possible(name, launcher)],
    }  # fmt: skip


def _is_possible(strategy: str, launcher: str) -> bool:
    from lockstep.engine.job import Job, JobError

    try:
        Job.of(strategy, workers=2, launcher=launcher)
    except JobError:
        return False
    return True


def _entry(name: str, declared: type[Declared]) -> Entry:
    options = [_option(option) for option in declared.options]
    return {"name": name, "label": declared.label or name, "does": declared.does, "options": options}


def _option(option: Option) -> Entry:
    return {"name": option.name, "default": option.default, "allowed": option.allowed, "help": option.help}


def _text(found: Mapping[str, Iterable[Entry]]) -> Iterator[str]:
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    for kind, entries in found.items():
        shown = list(entries)
        if shown:
            yield from (_TITLES[kind], "=" * len(_TITLES[kind]), "")
        for entry in shown:
            # The options of a row are those of its sync, which stand there.
            yield from _lines(entry, width, with_options=kind != "strategies")
            yield ""


def _lines(entry: Entry, width: int, with_options: bool) -> Iterator[str]:
    yield f"{entry['name']}: {entry['label']}"
    fields = ", ".join(f"{name}={value!r}" for name, value in entry.get("fields", {}).items())
    parts = [
        ("", entry["does"]),
        ("fields", fields),
        ("equals sequential training", entry.get("preserves") or entry.get("equals_sequential", "")),
        ("runs on", ", ".join(entry.get("runs_on", []))),
    ]
    for title, text in parts:
        if text:
            start = f"{title}: " if title else ""
            yield textwrap.fill(start + text, width, initial_indent="    ", subsequent_indent="        ")
    for option in entry["options"] if with_options else ():
        allowed = f" ({option['allowed']})" if option["allowed"] else ""
        text = f"{option['name']} = {option['default']!r}{allowed}: {option['help']}"
        yield textwrap.fill(text, width, initial_indent="    ", subsequent_indent="        ")
