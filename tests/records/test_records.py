"""The results schema: whatever was written is read back, whole rounds or nothing, and never two experiments in one."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.engine.files import WriteError
from lockstep.engine.job import IDENTITY, Job
from lockstep.engine.launch import LAUNCHERS
from lockstep.engine.peers import PEERS
from lockstep.engine.sync import SYNCS
from lockstep.records import (
    COLUMNS,
    MEASUREMENTS,
    RecordError,
    Row,
    RunFolder,
    check_row,
    make_row,
    read_records,
    read_run,
    read_traced_table,
    reading,
)
from sessions import MACHINE, SESSION

INFO: dict[str, Any] = {"parameters": {"steps": 2, "workers": (1, 2)}, "data": {}}


def opened(folder: Path, info: dict[str, Any] = INFO, **session: Any) -> RunFolder:
    return RunFolder(folder, info, SESSION | session)


def rows(number: int = 0, **measured: float) -> list[Row]:
    values = measured or {"images_per_second": 10.5, "step_seconds": 0.1}
    return [make_row(Job.of(name, round=number), values) for name in ("sequential", "processes")]


def samples(number: int, count: int = 2) -> pd.DataFrame:
    return pd.DataFrame({"round": number, "seconds": np.arange(count) / 10, "cpu_percent": 33.3})


def hidden(folder: Path) -> list[str]:
    """Temporary files that were left behind."""
    return [path.name for path in folder.iterdir() if path.name.startswith(".") and path.name != ".lock"]


# --- rows ---


def test_every_launcher_and_sync_may_stand_in_a_row() -> None:
    assert set(LAUNCHERS) <= set(COLUMNS["launcher"].allowed)
    assert {*SYNCS, *PEERS} <= set(COLUMNS["sync"].allowed)


def test_a_row_has_every_column_in_order() -> None:
    row = make_row(Job.of("processes", workers=2), {"step_seconds": 0.5})
    assert list(row) == list(COLUMNS) == [*IDENTITY, *MEASUREMENTS, "session", "source", "status", "reason"]
    assert (row["workers"], row["step_seconds"], row["test_auc"]) == (2, 0.5, None)
    assert (row["session"], row["source"], row["status"], row["reason"]) == (0, "measured", "ok", "")


def test_an_unknown_measurement_is_named_with_those_that_exist() -> None:
    with pytest.raises(RecordError, match=r"unknown measurement\(s\) \['seconds'\]; there are: .*step_seconds"):
        make_row(Job(), {"seconds": 1.0})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("status", "fine", "status='fine' is not allowed; give one of: ok, failed, skipped"),
        ("source", "guessed", "source='guessed' is not allowed"),
        ("sync", "telepathy", "sync='telepathy' is not allowed; give one of: local,"),
        ("strategy", "mpi", "strategy='mpi' is not allowed"),
        ("workers", 2.0, "workers=2.0 is not integer"),
        ("workers", True, "workers=True is not integer"),
        ("selected", 1, "selected=1 is not flag"),
        ("step_seconds", "0.1", "step_seconds='0.1' is not number"),
        ("step_seconds", True, "step_seconds=True is not number"),
        ("skipped_images", 1.5, "skipped_images=1.5 is not integer"),
        ("experiment", None, "experiment=None is not text"),
    ],
)
def test_a_value_that_does_not_fit_its_column(name: str, value: Any, message: str) -> None:
    row = make_row(Job(), {})
    with pytest.raises(RecordError) as caught:
        check_row({**row, name: value})
    assert str(caught.value).startswith(message)


def test_a_missing_column() -> None:
    row = make_row(Job(), {})
    del row["workers"]
    with pytest.raises(RecordError, match="column 'workers' is missing from a row"):
        check_row(row)


@pytest.mark.parametrize("status", ["failed", "skipped"])
def test_what_did_not_run_must_say_why(status: str) -> None:
    with pytest.raises(RecordError, match=f"a {status} row must say why: fill 'reason' .sequential, SimpleBig."):
        make_row(Job(), {}, status=status, reason=" \n ")
    assert make_row(Job(), {}, status=status, reason="no CUDA device")["status"] == status


# --- round trip ---


def test_rounds_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    with opened(tmp_path) as run:
        assert run.rounds_done == []
        run.write_round(rows(0))
        run.write_round(rows(1, step_seconds=0.25, skipped_images=3))
        assert run.rounds_done == [0, 1]
    frame = read_records(tmp_path)
    assert list(frame.columns) == list(COLUMNS)
    assert frame["round"].tolist() == [0, 0, 1, 1]
    assert frame["step_seconds"].tolist() == [0.1, 0.1, 0.25, 0.25]
    assert frame["skipped_images"].isna().tolist() == [True, True, False, False]
    assert frame["skipped_images"].tolist()[2:] == [3, 3]
    assert frame["strategy"].tolist() == ["sequential", "processes"] * 2
    assert (frame["selected"].dtype, frame["workers"].dtype) == (bool, np.int64)
    assert not hidden(tmp_path)


def test_none_and_nothing_are_text(tmp_path: Path) -> None:
    with opened(tmp_path) as run:
        run.write_round([make_row(Job(experiment="null", input="none"), {}), make_row(Job(experiment="NA"), {})])
    frame = read_records(tmp_path)
    assert frame["experiment"].tolist() == ["null", "NA"]
    assert frame["input"].tolist() == ["none", "jpeg"]
    assert frame["policy"].tolist() == ["none", "none"]
    assert frame["reason"].tolist() == ["", ""]


@settings(max_examples=10, deadline=None)
@given(
    reasons=st.lists(
        st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0")), min_size=5, max_size=20
    ),
    seconds=st.floats(0, 1e9, exclude_min=True),
)
def test_any_reason_and_any_number_survive(
    tmp_path_factory: pytest.TempPathFactory, reasons: list[str], seconds: float
) -> None:
    """White space becomes single spaces: a traceback's reason stays on its row."""
    folder = tmp_path_factory.mktemp("run")
    with opened(folder) as run:
        run.write_round([make_row(Job(seed=n), {"step_seconds": seconds}, reason=why) for n, why in enumerate(reasons)])
    frame = read_records(folder)
    assert frame["reason"].tolist() == [" ".join(reason.split()) for reason in reasons]
    assert frame["step_seconds"].tolist() == [seconds] * len(reasons)


def test_commas_quotes_and_lines_in_a_reason(tmp_path: Path) -> None:
    with opened(tmp_path) as run:
        run.write_round([make_row(Job(), {}, status="failed", reason='can\'t, "said" he:\r\n\n  no; naïve … 火')])
        run.write_round(rows(1))
    assert read_records(tmp_path)["reason"].tolist() == ['can\'t, "said" he: no; naïve … 火', "", ""]


# --- reading what is not right ---


def test_records_that_do_not_exist(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"records\.csv does not exist; measure it first with `lockstep run`"):
        read_records(tmp_path)
    with pytest.raises(RecordError, match=r"run\.json does not exist; the folder holds no run"):
        read_run(tmp_path)


def stored(folder: Path) -> Path:
    with opened(folder) as run:
        run.write_round(rows(0))
    return folder / "records.csv"


def test_other_columns(tmp_path: Path) -> None:
    path = stored(tmp_path)
    path.write_text(path.read_text().replace("step_seconds", "step_time", 1))
    with pytest.raises(RecordError, match="line 1 has other columns than schema 2: missing: step_seconds; unk"):
        read_records(tmp_path)


def test_rows_from_before_a_strategys_option_have_its_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = stored(tmp_path)
    pd.read_csv(path, keep_default_na=False).drop(columns=["optimiser"]).to_csv(path, index=False)
    with pytest.raises(RecordError, match="line 1 has other columns than schema 2: missing: optimiser"):
        read_records(tmp_path)
    monkeypatch.setattr(reading, "ADDED", ("optimiser",))
    (tmp_path / "checks.csv").unlink()
    frame = read_records(tmp_path)
    assert list(frame.columns) == list(COLUMNS) and set(frame["optimiser"]) == {"fused"}
    with pytest.raises(RecordError, match="was written with other columns; give another folder"):
        opened(tmp_path).__enter__()


def test_columns_in_another_order(tmp_path: Path) -> None:
    path = stored(tmp_path)
    pd.read_csv(path)[[*reversed(COLUMNS)]].to_csv(path, index=False)
    with pytest.raises(RecordError, match="schema 2: column 1: 'reason' stands there, and 'experiment' belongs there"):
        read_records(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (",shared_memory,", ",telepathy,", "sync='telepathy' is not allowed; there are: local,"),
        (",0.1,", ",fast,", "='fast' is not number"),
        (",False,", ",maybe,", "='maybe' is not flag"),
    ],
)
def test_a_bad_value_in_the_file(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = stored(tmp_path)
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(RecordError) as caught:
        read_records(tmp_path)
    assert message in str(caught.value)
    assert "records.csv" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00"])
def test_a_damaged_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "records.csv").write_bytes(content)
    with pytest.raises(RecordError, match="line 1: these are not the columns of records"):
        read_records(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema_version": 99}'])
def test_a_damaged_or_foreign_run_description(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(RecordError, match=r"run\.json"):
        read_run(tmp_path)


# --- whole or not at all ---


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_a_round_that_fails_to_be_written_leaves_the_old_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, fault: BaseException
) -> None:
    before = stored(tmp_path).read_bytes()

    def fail(*_: object) -> None:
        raise fault

    with opened(tmp_path) as run:
        with monkeypatch.context() as patched, pytest.raises((KeyboardInterrupt, WriteError)) as caught:
            patched.setattr(os, call, fail)
            run.write_round(rows(1))
        if isinstance(fault, OSError):
            assert str(caught.value).endswith(".csv: the disk is full: free some space")
            assert str(tmp_path) in str(caught.value)
        assert (tmp_path / "records.csv").read_bytes() == before
        assert not hidden(tmp_path)
        assert run.rounds_done == [0]
        run.write_round(rows(1))
        assert run.rounds_done == [0, 1]


def test_a_bad_row_keeps_its_whole_round_out(tmp_path: Path) -> None:
    with opened(tmp_path) as run:
        with pytest.raises(RecordError, match=r"workers=0\.5"):
            run.write_round([*rows(0), {**rows(0)[0], "workers": 0.5}], {"resources": samples(0)})
        assert run.rounds_done == []
        assert read_traced_table(tmp_path, "resources") is None


def test_samples_of_a_round_that_was_lost_are_dropped_when_it_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fills up between resources.csv and records.csv."""
    with opened(tmp_path) as run:
        run.write_round(rows(0), {"resources": samples(0)})
        replace = os.replace

        def full(source: str, target: Path) -> None:
            if target.name == "records.csv":
                raise OSError(errno.ENOSPC, "No space left on device")
            replace(source, target)

        with monkeypatch.context() as patched, pytest.raises(WriteError, match="disk is full"):
            patched.setattr(os, "replace", full)
            run.write_round(rows(1), {"resources": samples(1, 5)})
        assert run.rounds_done == [0]
        run.write_round(rows(1), {"resources": samples(1, 3)})
    assert sorted(set(read_records(tmp_path)["round"])) == [0, 1], "and its checks are those of what was written"
    table = read_traced_table(tmp_path, "resources")
    assert table is not None
    assert table["round"].tolist() == [0, 0, 1, 1, 1]
    assert table["seconds"].tolist() == [0.0, 0.1, 0.0, 0.1, 0.2]


def test_stored_samples_do_not_change_as_rounds_are_added(tmp_path: Path) -> None:
    """The table is read and written again for every round."""
    first = samples(0, 50).assign(cpu_percent=np.random.default_rng(0).normal(100, 1, 50))
    with opened(tmp_path) as run:
        run.write_round(rows(0), {"resources": first})
        text = (tmp_path / "resources.csv").read_text()
        for number in range(1, 4):
            run.write_round(rows(number), {"resources": samples(number)})
    assert (tmp_path / "resources.csv").read_text().startswith(text)


# --- one run, one folder ---


def test_a_second_run_into_the_same_folder_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as run:
        with pytest.raises(RecordError, match="is in use by another run; wait for it or give another folder") as caught:
            opened(tmp_path).__enter__()
        assert str(tmp_path) in str(caught.value)
        run.write_round(rows(0))
    with opened(tmp_path) as run:
        assert run.rounds_done == [0]


HOLD = """
import json, sys
from lockstep.records import RunFolder
with RunFolder(sys.argv[1], {"parameters": {}}, json.loads(sys.argv[2])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.usefixtures("no_leftovers")
def test_a_folder_is_free_again_when_its_run_was_killed(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path), json.dumps(SESSION)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdin and holder.stdout
    with holder.stdin, holder.stdout:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RecordError, match="is in use by another run"):
            opened(tmp_path).__enter__()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with RunFolder(tmp_path, {"parameters": {}}, SESSION) as run:
        assert run.rounds_done == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("parameters", {"steps": 3, "workers": (1, 2)}), ("data", {"SimpleBig": {"source": "real"}})],
)
def test_two_experiments_are_never_mixed(tmp_path: Path, name: str, value: object) -> None:
    before = stored(tmp_path).read_bytes()
    with pytest.raises(RecordError, match=f"holds a run with another {name} .*give another folder with --out"):
        opened(tmp_path, {**INFO, name: value}).__enter__()
    assert (tmp_path / "records.csv").read_bytes() == before
    with opened(tmp_path, {**INFO, "workers": []}) as run:  # and the refusal let the folder go
        assert run.rounds_done == [0]
    assert "workers" not in read_run(tmp_path), "what the first rounds were measured with stays"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("git", {"commit": "def", "dirty": False}),
        ("git", {"commit": "abc", "dirty": True}),
        ("machine", MACHINE | {"cores": 64}),
        ("versions", {"torch": "1.0"}),
        ("day", "2026-11-23"),
    ],
)
def test_other_circumstances_are_a_session_of_their_own(tmp_path: Path, name: str, value: object) -> None:
    """A run goes on with another CPU or another day, and never mixes them: each row says which session it is of."""
    stored(tmp_path)
    with opened(tmp_path, **{name: value}) as run:
        assert run.number == 1
        run.write_round([row | {"session": run.number} for row in rows(1)])
    with opened(tmp_path) as run:
        assert run.number == 0, "the first circumstances again are the first session"
    assert [session[name] for session in read_run(tmp_path)["sessions"]] == [SESSION[name], value]
    assert read_records(tmp_path)["session"].tolist() == [0, 0, 1, 1]


def test_a_few_kib_of_memory_more_are_the_same_machine(tmp_path: Path) -> None:
    """Seen: a machine that was started again had 8 KiB more, and every comparison would have begun anew."""
    with opened(tmp_path, machine=MACHINE | {"memory_bytes": 25_276_502_016}) as run:
        run.write_round(rows(0))
    with opened(tmp_path, machine=MACHINE | {"memory_bytes": 25_276_510_208}) as run:
        assert run.number == 0
    with opened(tmp_path, machine=MACHINE | {"memory_bytes": 34_359_738_368}) as run:
        assert run.number == 1 and run.comparable == {1}


def test_records_without_their_description_are_refused(tmp_path: Path) -> None:
    stored(tmp_path)
    (tmp_path / "run.json").unlink()
    with pytest.raises(RecordError, match=r"records\.csv has no run\.json beside it"):
        opened(tmp_path).__enter__()


def test_what_was_traced_of_a_lost_round_is_dropped_when_the_run_goes_on(tmp_path: Path) -> None:
    """Killed between the tables and the records: the number is given to another round, which may trace nothing."""
    with opened(tmp_path) as run:
        run.write_round(rows(0), {"resources": samples(0)})
        before = (tmp_path / "records.csv").read_bytes()
        run.write_round(rows(1), {"resources": samples(1)})
    (tmp_path / "records.csv").write_bytes(before)
    with opened(tmp_path) as run:
        run.write_round(rows(1))
    table = read_traced_table(tmp_path, "resources")
    assert table is not None and set(table["round"]) == {0}


def test_a_run_without_sessions_is_refused(tmp_path: Path) -> None:
    stored(tmp_path)
    path = tmp_path / "run.json"
    path.write_text(path.read_text().replace('"sessions"', '"seasons"'))
    with pytest.raises(RecordError, match="names no session; it was not written by this code"):
        opened(tmp_path).__enter__()


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_file_in_the_way(tmp_path: Path, below: str) -> None:
    (tmp_path / "results").touch()
    with pytest.raises(WriteError, match=r"results can't be written to .*: a file is in the way") as caught:
        opened(tmp_path / "results" / below).__enter__()
    assert str(tmp_path / "results") in str(caught.value)


@pytest.mark.parametrize(
    ("number", "fix"),
    [(errno.EACCES, "it is not writable: change its permissions"), (errno.EROFS, "its file system is read-only")],
)
def test_an_unwritable_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, fix: str) -> None:
    """The tests may run as root, whom no permission stops."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(WriteError, match=f"results can't be written to .*out: {fix}"):
        opened(tmp_path / "out").__enter__()
