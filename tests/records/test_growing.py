"""Files that grow by whole rounds: nothing is read twice, nothing changes, and kill -9 leaves whole rounds."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lockstep.engine.files import WriteError
from lockstep.engine.job import Job
from lockstep.records import RecordError, RunFolder, make_row, read_records, read_traced_table
from lockstep.records.growing import append_csv
from sessions import SESSION


def opened(folder: Path) -> RunFolder:
    return RunFolder(folder, {"parameters": {}}, SESSION)


def test_rows_follow_what_stands_there_byte_by_byte(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    first = pd.DataFrame({"round": 0, "name": ['a "b", c', "1"], "seconds": np.random.default_rng(0).random(2)})
    length = append_csv(path, 0, first)
    before = path.read_bytes()
    assert length == len(before)
    second = first.assign(round=1)
    append_csv(path, length, second)
    assert path.read_bytes().startswith(before)
    both = pd.concat([first, second], ignore_index=True)
    assert pd.read_csv(path, float_precision="round_trip").equals(both)
    append_csv(path, length, first.assign(round=2))
    assert pd.read_csv(path)["round"].tolist() == [0, 0, 2, 2], "what stands behind the length is of a lost round"


def test_columns_that_one_of_both_lacks_are_empty(tmp_path: Path) -> None:
    """As the samples of a file from before a column: it has none there, and stays as it was written."""
    path = tmp_path / "resources.csv"
    old = pd.DataFrame({"round": [0], "name": ["1"], "threads": [5]})
    length = append_csv(path, 0, old)
    new = pd.DataFrame({"round": [1], "name": ["x"], "threads": [6], "training_threads": [2]})
    length = append_csv(path, length, new)
    append_csv(path, length, old.assign(round=2)[["threads", "name", "round"]])
    assert path.read_text().splitlines() == ["round,name,threads,training_threads", "0,1,5,", "1,x,6,2", "2,1,5,"]


def test_a_file_that_was_removed_meanwhile_is_an_error(tmp_path: Path) -> None:
    """A new one would have held the rounds since, and nothing would have told that others are missing."""
    with opened(tmp_path) as run:
        run.write_round([make_row(Job(), {})])
        (tmp_path / "records.csv").unlink()
        with pytest.raises(WriteError, match=r"results can't be written to .*records\.csv: No such file"):
            run.write_round([make_row(Job(round=1), {})])


def test_a_traced_table_that_changes_during_a_run_is_not_sealed_as_right(tmp_path: Path) -> None:
    """Seen: its changed bytes were copied in front of the next round's, and had a checksum from then on."""
    path, steps = tmp_path / "steps.csv", pd.DataFrame({"round": [0], "seconds": [0.5]})
    said = r"steps\.csv is not as it was .* unless that file has changed; restore the one that has, or remove steps"
    with opened(tmp_path) as run:
        run.write_round([make_row(Job(), {})], {"steps": steps})
        before = (tmp_path / "records.csv").read_bytes()
        path.write_bytes(path.read_bytes().replace(b"0.5", b"0.7"))
        with pytest.raises(RecordError, match=said):
            run.write_round([make_row(Job(round=1), {})], {"steps": steps.assign(round=1)})
    with pytest.raises(RecordError, match=said):
        read_traced_table(tmp_path, "steps")
    assert (tmp_path / "records.csv").read_bytes() == before


def test_the_next_round_follows_the_last_one_that_is_stored(tmp_path: Path) -> None:
    with opened(tmp_path) as run:
        assert run.next_round == 0
        run.write_round([make_row(Job(round=7), {})])
        assert run.next_round == 8
    with opened(tmp_path) as run:
        assert (run.next_round, run.rounds_done) == (8, [7])


def test_a_late_round_is_written_without_looking_at_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of rounds must not slow a run down: the rows of earlier ones are neither parsed nor formatted."""
    steps = pd.DataFrame({"round": np.repeat(np.arange(3000), 20), "seconds": 0.123456789})
    rows = [make_row(Job(round=number), {}) for number in range(3000)]
    with opened(tmp_path) as run:
        run.write_round(rows, {"steps": steps})
    formatted: list[int] = []
    to_csv = pd.DataFrame.to_csv

    def noted(self: pd.DataFrame, *of: Any, **how: Any) -> Any:
        formatted.append(len(self))
        return to_csv(self, *of, **how)

    monkeypatch.setattr(pd.DataFrame, "to_csv", noted)
    with opened(tmp_path) as run:
        monkeypatch.setattr(pd, "read_csv", lambda *of, **how: pytest.fail("parsed a file"))
        for number in range(3000, 3010):
            run.write_round([make_row(Job(round=number), {})], {"steps": steps[:20].assign(round=number)})
        assert run.next_round == 3010
    assert formatted == [20, 1] * 10


WRITE = """
import itertools, json, sys
import pandas as pd
from lockstep.engine.job import Job
from lockstep.records import RunFolder, make_row
with RunFolder(sys.argv[1], {"parameters": {}}, json.loads(sys.argv[2])) as run:
    for number in itertools.count(run.next_round):
        steps = pd.DataFrame({"round": number, "seconds": [0.125] * 40})
        rows = [make_row(Job.of(name, round=number), {}) for name in ("sequential", "processes")]
        run.write_round(rows, {"steps": steps})
        print(number, flush=True)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("no_leftovers")
def test_kill_9_in_the_middle_of_writing_leaves_whole_rounds(tmp_path: Path) -> None:
    for pause in (0.05, 0.11):
        words = [sys.executable, "-c", WRITE, str(tmp_path), json.dumps(SESSION)]
        writer = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        with writer.stdout:
            first = int(writer.stdout.readline())
            time.sleep(pause)
            writer.send_signal(signal.SIGKILL)
            told = [first, *map(int, writer.stdout.read().split())]
        writer.wait()
        stored = read_records(tmp_path)["round"].value_counts()
        assert set(stored) == {2}, "each round has both its rows"
        assert set(told) <= set(stored.index), "whatever was told as written is there"
        with opened(tmp_path) as run:
            assert run.rounds_done == sorted(stored.index) == list(range(run.next_round))
        steps = read_traced_table(tmp_path, "steps")
        assert steps is not None and steps["round"].value_counts().eq(40).all()
        assert set(steps["round"]) == set(stored.index)


def test_a_folder_that_is_older_than_an_option_goes_on(tmp_path: Path) -> None:
    """Seen: a new option of a parameter server, and no notebook could be measured further into its stored folder."""
    row = make_row(Job(strategy="sequential", sync="local"), {"step_seconds": 0.1 + 0.2})
    with RunFolder(tmp_path, {"parameters": {}, "data": {}}, SESSION) as run:
        run.write_round([row])
    path = tmp_path / "records.csv"
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    frame.drop(columns=["policy_options", "compute"]).to_csv(path, index=False)
    (tmp_path / "checks.csv").unlink()  # which was not written either
    with RunFolder(tmp_path, {"parameters": {}, "data": {}}, SESSION) as run:
        assert run.rounds_done == [0]
        run.write_round([row | {"round": 1}])
    stored = read_records(tmp_path)
    assert stored["round"].tolist() == [0, 1] and set(stored["compute"]) == {"real"}
    assert stored["step_seconds"].tolist() == [0.1 + 0.2] * 2, "to the last bit"
