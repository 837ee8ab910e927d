"""What strategies declare: read without torch, complete, and in keeping with the columns of stored records."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from lockstep.engine import registry
from lockstep.engine.declared import Chain, DeclaredSync, Equality, doubling, usual_values
from lockstep.engine.job import IDENTITY, Job, JobError
from lockstep.engine.job.agreement import with_new_options
from lockstep.engine.job.clock import Clock
from lockstep.engine.job.strategies import LAUNCHER_NAMES, STRATEGIES
from lockstep.engine.launch import LAUNCHERS
from lockstep.engine.options import Option
from lockstep.engine.peers import PEERS
from lockstep.engine.policies import POLICIES
from lockstep.engine.sync import SYNCS
from lockstep.records import ADDED, COLUMNS

EVERY_SYNC = pytest.mark.parametrize("name", registry.syncs_and_peers())


@pytest.fixture
def new_lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """To change the registry's lists, and forget what was made of them afterwards."""
    _forget()
    yield monkeypatch
    monkeypatch.undo()
    _forget()


def _forget() -> None:
    registry.declared_options.cache_clear()
    registry.readers.cache_clear()


def test_reading_declarations_loads_no_framework_and_takes_less_than_half_a_second() -> None:
    """Figures, reports and refusals read them, and must not wait for torch. CPU time: the machine may be busy."""
    program = """
import json, sys, time
start = time.process_time()
from lockstep.engine.job import Job
heavy = {"torch", "tensorflow", "numpy", "pandas", "pyspark", "ipyparallel", "mpi4py"} & set(sys.modules)
print(json.dumps([time.process_time() - start, sorted(heavy), Job(sync="allreduce", workers=2).synchronous]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    seconds, heavy, synchronous = json.loads(done.stdout)
    assert heavy == [] and synchronous and seconds < 0.5


def test_the_lists_name_the_classes_that_run() -> None:
    assert (set(SYNCS), set(PEERS), set(POLICIES), set(LAUNCHERS)) == (
        set(registry.SYNCS), set(registry.PEERS), set(registry.POLICIES), set(registry.LAUNCHERS)
    )  # fmt: skip
    assert LAUNCHER_NAMES == tuple(registry.LAUNCHERS) == tuple(LAUNCHERS)


def test_every_strategy_describes_itself() -> None:
    everything = registry.syncs_and_peers() | registry.policies() | registry.launchers()
    for name, declared in everything.items():
        assert declared.does and declared.label, name
        assert all(option.help for option in declared.options), name
    assert all(sync.preserves for sync in registry.syncs_and_peers().values())


@EVERY_SYNC
def test_a_plain_job_of_every_sync_can_run_somewhere(name: str) -> None:
    sync = registry.syncs_and_peers()[name]
    where = [each for each, launcher in registry.launchers().items() if sync.runs_on(each, launcher)]
    job = Job(sync=name, launcher=where[0], workers=2, **sync.usual)
    assert isinstance(sync.equality(job.values), Equality) and job.synchronous
    chain = sync.chain(job.values, 2, 1e6)
    assert chain is None or (chain.messages >= 0 and chain.bytes >= 0)


@EVERY_SYNC
def test_it_is_refused_where_it_does_not_run(name: str) -> None:
    sync = registry.syncs_and_peers()[name]
    for each, launcher in registry.launchers().items():
        if not sync.runs_on(each, launcher):
            with pytest.raises(JobError, match=f"sync='{name}'.*launcher='{each}'"):
                Job(sync=name, launcher=each, workers=2, **sync.usual)


def test_stored_records_begin_with_the_fields_of_a_job_in_their_order(root: Path) -> None:
    """The order of the columns follows from how the parts of Job build on each other; files have it for ever."""
    for path in sorted(root.glob("results/reference/*/records.csv")):
        with path.open() as file:
            header = file.readline().strip().split(",")
        assert header == [name for name in COLUMNS if name in header], path.parent.name
        assert set(COLUMNS) - set(header) <= set(ADDED), path.parent.name
        known = [name for name in IDENTITY if name in header]
        assert header[: len(known)] == known, path.parent.name
    assert tuple(field.name for field in fields(Job)) == IDENTITY


def test_columns_say_what_they_mean() -> None:
    assert (
        COLUMNS["exchange_every"].meaning
        == "local steps between two exchanges of parameters; 0: one exchange per epoch"
    )
    assert COLUMNS["transport"].allowed == ("messages", "rma", "sockets")


class Declares(DeclaredSync):
    options: tuple[Option, ...] = ()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (Option("exchange_every", 2, "another default", least=1), "'exchange_every' otherwise than another strategy"),
        (Option("workers", 1, "a field of its own"), "option 'workers', but a job has a field of that name; rename it"),
    ],
)
def test_an_option_can_not_stand_for_two_things(new_lines: pytest.MonkeyPatch, option: Option, message: str) -> None:
    new_lines.setattr(Declares, "options", (option,))
    new_lines.setitem(registry.SYNCS, "declares", f"{__name__}:Declares")
    with pytest.raises(TypeError, match=message):
        with_new_options(type("Fields", (Clock,), {}))


def test_a_wrong_line_is_named(new_lines: pytest.MonkeyPatch) -> None:
    new_lines.setitem(registry.SYNCS, "nowhere", "lockstep.engine.sync.nowhere:Nowhere")
    with pytest.raises(ImportError) as caught:
        registry.syncs()
    assert "'lockstep.engine.sync.nowhere:Nowhere' of lockstep/engine/registry.py" in caught.value.__notes__[0]


def test_a_sync_without_a_line_in_the_table_is_a_row_of_its_own_name() -> None:
    assert {row.fields["sync"] for row in STRATEGIES.values()} == set(registry.syncs_and_peers())


def test_who_says_nothing_promises_nothing() -> None:
    values: dict[str, Any] = {"workers": 2, "hosts": 1}
    assert not Declares.equality(values).equal and Declares.chain(values, 2, 1.0) is None
    assert str(Equality("linear", "a mean")) == "yes, with an optimiser that is linear in the gradient (SGD): a mean"


@pytest.mark.parametrize(
    ("parties", "chain"),
    [(2, Chain(2, 8.0)), (3, Chain(4, 4 / 3 * 8.0, counted=False)), (4, Chain(4, 12.0)), (8, Chain(6, 14.0))],
)
def test_an_all_reduce_by_halving_and_doubling(parties: int, chain: Chain) -> None:
    assert doubling(parties, 8.0) == chain


@pytest.mark.parametrize(
    ("given", "chain"),
    [
        ({"servers": 1}, Chain(2, 8.0)),
        ({"servers": 2, "shards": 2}, Chain(2, 4.0)),
        ({"shards": 1}, Chain(2, 6.0)),  # the owner does not send to itself
        ({"shards": 4}, Chain(2, 1.5)),
        ({"servers": 1, "compression": "topk"}, None),
    ],
)
def test_all_contributions_pass_the_link_of_a_server(given: dict[str, Any], chain: Chain | None) -> None:
    server = registry.syncs()["parameter_server"]
    assert server.chain(usual_values(server) | {"workers": 4, "hosts": 1} | given, 4, 1.0) == chain


@pytest.mark.parametrize(
    ("option", "allowed"),
    [
        (Option("a", False), "False | True"),
        (Option("a", "x", choices=("x", "y")), "x | y"),
        (Option("a", 1, least=1), "a whole number of at least 1"),
        (Option("a", 0.5, above=0, below=1), "a number above 0 and below 1"),
        (Option("a", "free"), ""),
    ],
)
def test_an_option_says_what_is_allowed(option: Option, allowed: str) -> None:
    assert option.allowed == allowed
    option.check(option.default)


def test_an_options_default_has_a_type_that_a_column_can_have() -> None:
    with pytest.raises(TypeError, match=r"option 'a': default \[\] is not a text, a number, True or False"):
        Option("a", [])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "0.5", True, 0.0])
def test_numbers_that_are_not_possible(value: Any) -> None:
    with pytest.raises(JobError, match=f"^a={value!r} is not possible; give a number above 0$"):
        Option("a", 0.5, above=0).check(value)
