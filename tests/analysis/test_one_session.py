"""Figures of seconds: bars beside each other are of one session, and what that leaves out is counted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from lockstep.analysis.cells import median_of
from lockstep.analysis.one_session import (
    by_processor,
    by_speed,
    in_one_session,
    of_one_session,
    on_one_processor,
    remark_on_seconds,
    table_of_one_session,
)
from lockstep.analysis.statistics import select
from lockstep.analysis.stored import Stored
from lockstep.engine.job import Job
from lockstep.records import COLUMNS
from lockstep.records.schema import CONTENDED

SECONDS = {("sequential", 0): 0.8, ("threads", 1): 0.2, ("sequential", 1): 0.4, ("processes", 1): 0.21,
           ("processes", 0): 0.42, ("sparknet", 0): 4.0}  # fmt: skip
"""Session 0's machine takes twice as long as session 1's."""


def stored(rounds: dict[tuple[str, int], int]) -> Stored:
    rows = []
    for (strategy, session), many in rounds.items():
        job = {"experiment": "table1", "use_case": "SimpleBig", "strategy": strategy, "variant": "a"}
        for number in range(many):
            row = dict.fromkeys(COLUMNS, 0) | Job.of("sequential").__dict__ | job
            row |= {"round": 100 * session + number, "session": session, "status": "ok", "reason": ""}
            rows.append({name: row[name] for name in COLUMNS} | {"step_seconds": SECONDS[strategy, session]})
    return Stored(pd.DataFrame(rows), machines={0: "an old CPU, 2026-11-22", 1: "a new CPU, 2026-11-25"})


def ratio(known: Stored) -> float:
    """Sequential training's median step over threads'."""
    above, below = (
        median_of(select(known.records, {"strategy": name}), "step_seconds") for name in ("sequential", "threads")
    )
    return above / below


def test_bars_of_two_machines_do_not_stand_beside_each_other() -> None:
    """Seen: bars of 0.604 and 0.236 seconds, 2.56 times on two cores, below a speedup of 1.88."""
    pooled = stored(
        {("sequential", 0): 9, ("processes", 0): 9, ("threads", 1): 3, ("sequential", 1): 3, ("processes", 1): 1}
    )
    shown, note = of_one_session(pooled, "table1")
    assert ratio(pooled) == pytest.approx(4.0) and ratio(shown) == pytest.approx(2.0)
    assert set(shown.records["session"]) == {1}, "where most rows stand, not most rounds"
    assert "a new CPU, 2026-11-25" in note and "1 to 3 rounds" in note and "not shown" not in note
    assert "row). The figure's sentence is about all sessions." in " ".join(note.split())


def test_of_equals_the_session_with_more_rounds_is_drawn_and_rows_of_others_are_counted() -> None:
    known = stored({("sequential", 0): 5, ("sparknet", 0): 5, ("sequential", 1): 2, ("threads", 1): 2})
    shown, note = of_one_session(known, "table1")
    assert set(shown.records["strategy"]) == {"sequential", "sparknet"}
    assert "an old CPU" in note and "one row measured in other sessions only: not shown" in " ".join(note.split())


def test_what_a_figure_is_about_is_in_it() -> None:
    counts = {("sequential", 0): 1, ("sparknet", 0): 1, ("sequential", 1): 5, ("threads", 1): 5, ("processes", 1): 5}
    assert set(of_one_session(stored(counts), "table1")[0].records["session"]) == {1}
    assert set(of_one_session(stored(counts), "table1", about="sparknet")[0].records["session"]) == {0}


def test_one_session_needs_no_word_and_other_experiments_stay() -> None:
    one = stored({("sequential", 1): 2, ("threads", 1): 2})
    assert of_one_session(one, "table1") == (one, "")
    titles = []

    def draw(shown: Stored, title: str) -> Figure:
        titles.append(title)
        return Figure()

    in_one_session("table1", draw)(one)
    assert titles == ["Where a step's time goes"]
    both = stored({("sequential", 0): 2, ("threads", 1): 2, ("sequential", 1): 2})
    assert of_one_session(both, "input")[0] is both


def test_seconds_of_several_processors_are_told_apart() -> None:
    """Seen: a cost model fitted to two processors erred by 10 % on average, and by 41 % on one of them."""
    known = stored({("sequential", 0): 5, ("threads", 1): 5, ("sequential", 1): 5})
    known = replace(known, records=known.records.assign(images_per_second=1.0), units={0: "amx", 1: "amx"})
    known = replace(known, processors={0: "Intel(R) Xeon(R) Processor", 1: "AMD EPYC"})
    kinds = by_processor(known, known.records)
    assert {name: sorted(set(rows["session"])) for name, rows in kinds.items()} == {"Intel Xeon": [0], "AMD EPYC": [1]}
    assert list(by_processor(known, known.records, units=True)) == ["Intel Xeon with AMX", "AMD EPYC with AMX"]
    records, name = on_one_processor(known)
    assert name == "AMD EPYC" and set(records["session"]) == {1}
    alone = replace(known, processors={0: "AMD EPYC", 1: "AMD EPYC"})  # alike, by images per second
    assert on_one_processor(alone) == (alone.records, "")
    table = pd.DataFrame({"speedup": [2.0], "step_seconds": [0.1]})
    assert "several processors" in remark_on_seconds(known, table) and remark_on_seconds(alone, table) == ""
    assert remark_on_seconds(known, table[["speedup"]]) == remark_on_seconds(known, table.assign(processor="A")) == ""
    # Seen in a figure: a bar 2.15 times as long as another one beside a ratio of 1.52.
    assert remark_on_seconds(alone) == "" and "several processors" in remark_on_seconds(known)


def test_a_table_of_seconds_is_of_the_session_that_its_figure_shows() -> None:
    """Seen: 2.96 s in a table of medians over five machines beside 1.05 s in the figure above it."""
    both = stored({("sequential", 0): 9, ("threads", 1): 5, ("sequential", 1): 5})
    frame = both.records
    both = replace(both, records=frame.assign(step_seconds=frame["session"].map({0: 3.0, 1: 1.0})))

    def steps(known: Stored) -> pd.DataFrame:
        return known.records.groupby("strategy", as_index=False)["step_seconds"].median()

    table = table_of_one_session("table1", steps)(both)
    assert set(table["step_seconds"]) == {1.0} != set(steps(both)["step_seconds"])
    assert table.attrs["remark"].startswith("Rows of one session: ") and "figure" not in table.attrs["remark"]


def test_a_processor_with_many_rows_but_no_interval_is_not_the_one_that_is_shown() -> None:
    """Seen: after 20 minutes on another machine the cost model rested on single rounds, seven of 21 cells had an
    interval, and every forecast changed; the machine that had an interval for all 22 was no longer told."""
    many = {(name, 1): 4 for name in ("sequential", "threads", "processes")}
    known = stored({("sequential", 0): 5} | many)
    known = replace(known, records=known.records.assign(images_per_second=1.0))
    known = replace(known, processors={0: "Intel(R) Xeon(R) Processor", 1: "AMD EPYC"})
    assert on_one_processor(known)[1] == "Intel Xeon"
    disturbed = known.records.assign(reason=known.records["session"].map({0: CONTENDED, 1: ""}))
    assert on_one_processor(replace(known, records=disturbed))[1] == "AMD EPYC", "rounds that others disturbed are none"


def paced(rounds: dict[tuple[str, int], int], paces: dict[int, float]) -> Stored:
    """Rounds of sessions of one processor's name, of which each computes at its own pace."""
    known = stored(rounds)
    rows = known.records.assign(images_per_second=known.records["session"].map(paces))
    return replace(known, records=rows, processors=dict.fromkeys(paces, "AMD EPYC"))


def test_two_speeds_of_one_name_are_two_processors() -> None:
    """Seen: a machine that called itself like one of an earlier session took 1.5 times as long, and the cost model that
    was fitted to both missed by 27 %."""
    rounds = {("sequential", 0): 4, ("sequential", 1): 3}
    unlike = paced(rounds, {0: 1.0, 1: 1.5})
    records, name = on_one_processor(unlike)
    assert set(records["session"]) == {0} and name == "AMD EPYC (session 0)", "where most rows stand"
    flops = unlike.records[unlike.records["session"] == 1].head(1).assign(experiment="flops", images_per_second=np.nan)
    known = replace(unlike, records=pd.concat([unlike.records, flops], ignore_index=True))
    found = on_one_processor(known)[0]
    assert found["experiment"].tolist() == ["table1"] * 4 + ["flops"], "an image takes the same FLOP everywhere"
    both = by_speed(unlike)
    assert list(both) == ["AMD EPYC (session 0)", "AMD EPYC (session 1)"]
    for name, rows in both.items():
        assert on_one_processor(replace(unlike, records=rows)) == (rows, ""), f"{name} by itself is one"
    near = paced(rounds, {0: 1.0, 1: 1.1})
    assert on_one_processor(near) == (near.records, ""), "as sessions of one machine differ"


def test_the_largest_group_of_sessions_that_agree_is_kept() -> None:
    """The longest session is slow, but two others agree that together have more rows; a session that shares no cell
    with any can't be told apart, and stays."""
    rounds = {("sequential", 0): 6, ("sequential", 1): 3, ("threads", 1): 2}
    whole = paced(rounds, {0: 1.0, 1: 1.6})
    third = whole.records[whole.records["session"] == 0].head(2).assign(session=2, images_per_second=1.55)
    other = third.assign(session=3, images_per_second=9.0, strategy="threads", use_case="ComplexSmall")
    known = replace(whole, records=pd.concat([whole.records, third, other], ignore_index=True))
    known = replace(known, processors=dict.fromkeys(range(4), "AMD EPYC"))
    records, name = on_one_processor(known)
    assert set(records["session"]) == {1, 2, 3} and name == "AMD EPYC (sessions 1-3)"


def test_a_disturbed_round_tells_no_speed() -> None:
    """While others use the machine it looks like a slower one."""
    whole = paced({("sequential", 0): 4, ("sequential", 1): 4}, {0: 1.0, 1: 1.0})
    last = whole.records["round"] >= 101
    slow = whole.records.assign(images_per_second=np.where(last, 0.5, 1.0))
    assert len(by_speed(replace(whole, records=slow))) == 2
    marked = slow.assign(reason=np.where(last, "contended", ""))
    assert on_one_processor(replace(whole, records=marked)) == (marked, "")
