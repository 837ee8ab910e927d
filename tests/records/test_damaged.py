"""Records that are not as they were measured: none of their numbers is used, and their rounds are measured again."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from examples import MUTATED_RECORDS
from lockstep.engine.job import Job
from lockstep.experiments.machines import machines, machines_in_short
from lockstep.experiments.report import report_json
from lockstep.records import RecordError, RunFolder, make_row, read_records, read_run, read_traced_table
from sessions import SESSION

INFO = {"parameters": {}, "data": {}}


def row(number: int, strategy: str = "sequential", **measured: float) -> dict[str, Any]:
    job = Job(strategy=strategy, sync="local", round=number)
    return make_row(job, {"images_per_second": 10.5 + number, "step_seconds": 3.25 - number} | measured)


def written(folder: Path, rounds: int = 3) -> Path:
    """So many rounds of two cells."""
    with RunFolder(folder, INFO, SESSION) as run:
        for number in range(rounds):
            steps = pd.DataFrame({"round": number, "name": ["a", "b"], "seconds": [0.5 + number, 0.25]})
            run.write_round([row(number), row(number, "own")], {"steps": steps})
    return folder / "records.csv"


def go_on(folder: Path) -> list[int]:
    with RunFolder(folder, INFO, SESSION) as run:
        return run.rounds_done


@pytest.mark.parametrize(
    ("measured", "message"),
    [
        ({"images_per_second": -5.0}, "images_per_second=-5.0 was never measured: it lies above 0 to 1e+09"),
        ({"images_per_second": math.inf}, "images_per_second=inf was never measured"),
        ({"images_per_second": 1e300}, "images_per_second=1e+300 was never measured"),
        ({"images_per_second": 0.0}, "images_per_second=0.0 was never measured"),
        ({"test_accuracy": 1.01}, "test_accuracy=1.01 was never measured: it lies from 0 to 1"),
        ({"peak_pss_bytes": -1.0}, "peak_pss_bytes=-1.0 was never measured"),
    ],
)
def test_a_value_that_was_never_measured_is_not_written(
    tmp_path: Path, measured: dict[str, float], message: str
) -> None:
    with RunFolder(tmp_path, INFO, SESSION) as run, pytest.raises(RecordError) as caught:
        run.write_round([row(0, **measured)])
    assert message in str(caught.value)
    assert not (tmp_path / "records.csv").exists()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("workers", 0, "workers=0 is not possible"),
        ("round", -1, "round=-1 is not possible"),
        ("session", -1, "session=-1 is not possible; sessions are numbered from 0"),
    ],
)
def test_a_row_of_no_worker_round_or_session_is_neither_written_nor_read(
    tmp_path: Path, name: str, value: int, message: str
) -> None:
    """Seen: session -1 was written and read."""
    with RunFolder(tmp_path, INFO, SESSION) as run, pytest.raises(RecordError, match=message):
        run.write_round([row(0) | {name: value}])
    path = written(tmp_path)
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    frame.loc[3, name] = str(value)
    frame.to_csv(path, index=False)
    sealed = (tmp_path / "checks.csv").rename(tmp_path / "aside")
    with pytest.raises(RecordError, match=rf"records\.csv, line 5: {message}.*; measure its round again"):
        read_records(tmp_path)
    sealed.rename(tmp_path / "checks.csv")  # by which round -1 was round 1
    with pytest.warns(UserWarning) as told:
        assert go_on(tmp_path) == [0, 2]
    assert any(message in str(one.message) for one in told)


def test_a_cell_stands_once_in_a_round(tmp_path: Path) -> None:
    message = "round 1 holds speed own of "
    with RunFolder(tmp_path, INFO, SESSION) as run, pytest.raises(RecordError, match=message):
        run.write_round([row(1, "own"), row(1, "own")])


def edit(old: str, new: str, line: int = 4) -> Callable[[list[str]], None]:
    def change(lines: list[str]) -> None:
        assert old in lines[line - 1]
        lines[line - 1] = lines[line - 1].replace(old, new, 1)

    return change


def double(lines: list[str]) -> None:
    lines.insert(4, lines[3])


def drop_last(lines: list[str]) -> None:
    lines.pop()


def drop_round(lines: list[str]) -> None:
    del lines[3:5]


def shorten(lines: list[str]) -> None:
    lines[3] = lines[3][:40]


def swap(lines: list[str]) -> None:
    lines[3] = lines[3].replace("11.5", "?").replace("2.25", "11.5").replace("?", "2.25")


DAMAGE: list[tuple[Callable[[list[str]], None], str, bool]] = [
    (edit("11.5", "-5"), "line 4: images_per_second=-5.0 was never measured", True),
    (edit("11.5", "inf"), "line 4: images_per_second=inf was never measured", True),
    (edit("11.5", "abc"), "line 4: images_per_second='abc' is not number", True),
    (edit("sequential", "mpi"), "line 4: strategy='mpi' is not allowed", False),
    (edit("11.5", "11.6", 5), "line 5: not as it was written", False),
    (swap, "line 4: not as it was written", False),
    (double, "line 5: speed sequential of", True),
    (shorten, "line 4: ", True),
    (drop_last, "round 2 has 1 of its 2 rows", False),
    (drop_round, "round 1 has 0 of its 2 rows", False),
]


@pytest.mark.parametrize(("change", "message", "seen_without_checks"), DAMAGE)
def test_damage_is_named_by_file_and_line_and_its_round_measured_again(
    tmp_path: Path, change: Callable[[list[str]], None], message: str, seen_without_checks: bool
) -> None:
    """Seen: all of these were accepted by report, and a round that lacked rows counted as done."""
    path = written(tmp_path)
    lines = path.read_text().splitlines()
    change(lines)
    path.write_text("\n".join(lines) + "\n")
    sealed = (tmp_path / "checks.csv").read_bytes()
    if seen_without_checks:
        (tmp_path / "checks.csv").unlink()
        with pytest.raises(RecordError):
            read_records(tmp_path)
        (tmp_path / "checks.csv").write_bytes(sealed)
    with pytest.raises(RecordError) as caught:
        read_records(tmp_path)
    assert str(path) in str(caught.value)
    with pytest.warns(UserWarning, match="round is measured again") as told:
        left = go_on(tmp_path)
    texts = [str(caught.value), *(str(one.message) for one in told)]
    assert any(message in text for text in texts), texts
    assert left == ([0, 1] if change is drop_last else [0, 2])
    assert sorted(set(read_records(tmp_path)["round"])) == left


def test_a_swapped_header_is_told_where(tmp_path: Path) -> None:
    """Seen: it listed what an older file lacks."""
    path = written(tmp_path, 1)
    path.write_text(path.read_text().replace("use_case,data_source", "data_source,use_case", 1))
    with pytest.raises(RecordError, match="column 2: 'data_source' stands there, and 'use_case' belongs there"):
        read_records(tmp_path)


def test_a_file_of_other_columns_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    """Seen: one that lacked a column was emptied first, and the copy of it at the next start."""
    path = written(tmp_path)
    for content in (
        path.read_bytes().replace(b",reason", b"", 1),
        path.read_bytes().replace(b"\n", b"\r\n"),
        b"",
        b"\xff\xfe",
    ):
        path.write_bytes(content)
        for _ in range(2):
            with pytest.raises(RecordError, match="was written with other columns"):
                go_on(tmp_path)
        assert path.read_bytes() == content and not list(tmp_path.glob("records.damaged*"))


def test_a_run_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    """Seen: columns were taken in and damage was left out before the parameters were compared."""
    path = written(tmp_path)
    path.write_text(path.read_text().replace("11.5", "-5", 1))
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir() if each.is_file()}
    other = {"parameters": {"workers": 2}, "data": {}}
    with pytest.raises(RecordError, match="another parameters"), RunFolder(tmp_path, other, SESSION):
        pass
    assert before == {each.name: each.read_bytes() for each in tmp_path.iterdir() if each.is_file()}


def test_every_damaged_file_is_kept(tmp_path: Path) -> None:
    path = written(tmp_path)
    for number in (1, 2):
        path.write_text(path.read_text().replace(str(10.5 + number), "-5", 1))
        damaged = path.read_bytes()
        with pytest.warns(UserWarning, match="round is measured again"):
            go_on(tmp_path)
        assert (tmp_path / f"records.damaged-{number}.csv").read_bytes() == damaged


def test_checks_of_a_round_that_was_never_written_are_no_damage(tmp_path: Path) -> None:
    """They are written just before it."""
    path = written(tmp_path)
    before = path.read_bytes()
    with RunFolder(tmp_path, INFO, SESSION) as run:
        run.write_round([row(3)])
    path.write_bytes(before)
    assert len(read_records(tmp_path)) == 6
    assert go_on(tmp_path) == [0, 1, 2]
    with RunFolder(tmp_path, INFO, SESSION) as run:
        run.write_round([row(3)])
    assert len(read_records(tmp_path)) == 7


def test_a_traced_table_that_has_changed_is_refused(tmp_path: Path) -> None:
    """Seen: a digit was read as it stood there, and a table with a field too many ended in pandas' own error."""
    written(tmp_path)
    path, sealed = tmp_path / "steps.csv", tmp_path / "table_checks.csv"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"1.5", b"1.7"))
    with pytest.raises(RecordError, match=r"steps\.csv is not as it was written, by its checksum in table_checks\.csv"):
        read_traced_table(tmp_path, "steps")
    with pytest.raises(RecordError, match="is not as it was written"):
        go_on(tmp_path)
    sealed.unlink()  # as of a folder that is older
    for content in (whole + b"1,a,0.5,7\n", whole + b"\xff", b""):
        path.write_bytes(content)
        with pytest.raises(RecordError, match=r"steps\.csv can't be read: "):
            read_traced_table(tmp_path, "steps")
    path.write_bytes(whole)
    found = read_traced_table(tmp_path, "steps")
    assert found is not None and len(found) == 6


@pytest.mark.parametrize("line", ["stepz,{}", "{}", "steps,-{}"])
def test_a_damaged_list_of_checks_is_refused(tmp_path: Path, line: str) -> None:
    """Seen: with another name in it the table's check was off, and nobody was told."""
    written(tmp_path)
    path = tmp_path / "table_checks.csv"
    header, *lines = path.read_text().splitlines()
    changed = [line.format(each.partition(",")[2]) for each in lines]
    path.write_text("\n".join([header, *changed]) + "\n")
    with pytest.raises(RecordError, match=rf"table_checks\.csv, line 2: '{changed[0]}' is no traced table and its"):
        read_traced_table(tmp_path, "steps")
    with pytest.raises(RecordError, match="remove it and do without its checks"):
        go_on(tmp_path)


def test_a_table_that_names_no_round_is_refused(tmp_path: Path) -> None:
    """Seen: KeyError in the next run, of a table that is older than its checks."""
    written(tmp_path)
    (tmp_path / "table_checks.csv").unlink()
    (tmp_path / "steps.csv").write_text("name,seconds\na,0.5\n")
    with pytest.raises(RecordError, match=r"steps\.csv can't be read: it has no column 'round', but name, seconds;"):
        go_on(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda found: found[0].update(day="d"), "day='d' is not a day such as 2026-11-22"),
        (lambda found: found[0].update(day=20261122), "day=20261122 is not a day"),
        (lambda found: found[0].pop("day"), "day is missing"),
        (lambda found: found[0].update(machine=found[0].pop("git")), "git.commit is missing"),
        (lambda found: found[0].update(machine="m"), "machine.cpu is missing"),
        (lambda found: found[0]["machine"].pop("cores"), "machine.cores is missing"),
        (lambda found: found[0]["machine"].update(cores=0), "machine.cores=0 is not a whole number from 1 to 1048576"),
        (lambda found: found[0]["machine"].update(cores=True), "machine.cores=True is not a whole number"),
        (lambda found: found[0]["machine"].update(cores="2"), "machine.cores='2' is not a whole number"),
        (lambda found: found[0]["machine"].update(memory_bytes=-1), "machine.memory_bytes=-1 is not a whole number"),
        (lambda found: found[0]["machine"].update(memory_bytes=math.nan), "machine.memory_bytes=nan is not a whole"),
        (lambda found: found[0]["machine"].update(gpu=[7]), r"machine.gpu=\[7\] is not a list of texts"),
        (lambda found: found[0]["git"].update(dirty="no"), "git.dirty='no' is not true, false or null"),
        (lambda found: found[0].update(versions=[]), r"versions=\[\] is not versions by name"),
        (lambda found: found.__setitem__(0, 7), "7 is no session: it has no fields"),
    ],
)
def test_a_session_that_no_run_was_made_in_is_refused(
    tmp_path: Path, change: Callable[[list[Any]], Any], message: str
) -> None:
    """Seen: KeyError and TypeError in the report, of folders that are older than the checksum."""
    written(tmp_path)
    path = tmp_path / "run.json"
    run = json.loads(path.read_text())
    change(run["sessions"])
    path.write_text(json.dumps(run))
    (tmp_path / "table_checks.csv").unlink()
    for read in (read_run, machines, machines_in_short):
        with pytest.raises(RecordError, match=rf"run\.json, session 0: {message}.*; restore the file, or give another"):
            read(tmp_path)
    with pytest.raises(RecordError, match="session 0"):
        go_on(tmp_path)


def test_a_run_that_has_changed_is_refused(tmp_path: Path) -> None:
    """Seen: 2 cores became 7, and the report named them."""
    written(tmp_path)
    path = tmp_path / "run.json"
    path.write_text(path.read_text().replace('"cores": 2', '"cores": 7'))
    with pytest.raises(RecordError, match=r"run\.json is not as it was written, by its checksum in table_checks\.csv"):
        machines(tmp_path)
    with pytest.raises(RecordError, match="restore the one that has, or give another folder"):
        go_on(tmp_path)


def test_a_run_that_is_older_than_its_checksum_is_read_and_sealed_by_the_next(tmp_path: Path) -> None:
    written(tmp_path)
    path, checks = tmp_path / "run.json", tmp_path / "table_checks.csv"
    before = path.read_bytes()
    lines = checks.read_text().splitlines(keepends=True)
    checks.write_text("".join(line for line in lines if not line.startswith("run,")))
    assert machines(tmp_path).startswith("A CPU, 2 cores") and b"run," not in checks.read_bytes()
    assert go_on(tmp_path) == [0, 1, 2]
    assert path.read_bytes() == before and f"run,{zlib.crc32(before)}" in checks.read_text().splitlines()


def test_a_run_nested_without_end_is_refused(tmp_path: Path) -> None:
    """Seen: RecursionError."""
    written(tmp_path)
    (tmp_path / "run.json").write_text("[" * 100_000)
    with pytest.raises(RecordError, match=r"run\.json can't be read \(maximum recursion depth"):
        read_run(tmp_path)


@pytest.mark.parametrize("older", [False, True])
def test_runs_killed_between_a_table_and_its_check_go_on(tmp_path: Path, older: bool) -> None:
    path = written(tmp_path).with_name("steps.csv")
    before, records = path.read_bytes(), (tmp_path / "records.csv").read_bytes()
    if older:
        (tmp_path / "table_checks.csv").unlink()
    for seconds in (1.0, 2.0):  # the second run is killed at the same place
        with RunFolder(tmp_path, INFO, SESSION) as run:
            run.write_round([row(3)], {"steps": pd.DataFrame({"round": [3], "name": ["a"], "seconds": [seconds]})})
        path.write_bytes(before)
        (tmp_path / "records.csv").write_bytes(records)
        assert go_on(tmp_path) == [0, 1, 2]


@dataclass
class Whole:
    """A folder of a notebook's records, and all that is read from it."""

    folder: Path
    told: tuple[Any, ...]
    records: pd.DataFrame
    steps: pd.DataFrame | None
    report: str


@pytest.fixture
def whole(tmp_path: Path) -> Whole:
    folder = written(tmp_path / "02_threads_vs_processes").parent
    steps = read_traced_table(folder, "steps")
    return Whole(folder, told(folder), read_records(folder), steps, report_json(tmp_path))


def told(folder: Path) -> tuple[Any, ...]:
    """What run.json says, and what the report and the README make of it."""
    return read_run(folder), machines(folder), machines_in_short(folder)


FILES = ("records.csv", "checks.csv", "steps.csv", "table_checks.csv", "run.json")


@pytest.mark.slow
@settings(deadline=None, max_examples=MUTATED_RECORDS, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutated_records_change_no_number_unless_they_are_refused(
    whole: Whole, data: st.DataObject, mutations: int
) -> None:
    """Bytes that are changed, put in or taken out, anywhere in any of the files.

    Seen: a traced table, from which figures and tables take their numbers, was read as whatever stood in it; and the
    cores in run.json, which the report names, were whatever stood there.
    """
    folder = whole.folder
    name = data.draw(st.sampled_from(FILES))
    path = folder / name
    original = path.read_bytes()
    try:
        for _ in range(data.draw(st.integers(1, mutations))):
            content = path.read_bytes()
            where = data.draw(st.integers(0, max(0, len(content) - 1)))  # seen: three mutations left nothing
            gone = data.draw(st.sampled_from([0, 1, 1, 3, 200]))
            path.write_bytes(content[:where] + data.draw(st.binary(max_size=3)) + content[where + gone :])
        try:
            assert told(folder) == whole.told
            found, table = read_records(folder), read_traced_table(folder, "steps")
        except RecordError:
            return
        assert found.equals(whole.records.iloc[: len(found)].reset_index(drop=True))
        assert table is not None and table.equals(whole.steps)
        if len(found) == len(whole.records):
            assert report_json(folder.parent) == whole.report
    finally:
        path.write_bytes(original)


@pytest.fixture
def mutations() -> int:
    return 3
