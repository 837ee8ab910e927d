"""Who was slow and in what, from rows whose answer is known."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pandas as pd
import pytest

from fake_pipelines import held, pipelines, tables
from lockstep.analysis.timeline import (
    action_trace,
    chrome_trace,
    rank_table,
    slowest,
    write_action_traces,
    write_traces,
)
from lockstep.engine.training.loop import STEP_COLUMNS, Trace
from lockstep.measure.traced_tables import step_table


def step(compute: float, wait: float, input: float = 0.01, whole: float = 0.5) -> dict[str, float]:
    """A step of half a second: what is not named is exchange 0.1 and update 0.02."""
    known = {"input_seconds": input, "compute_seconds": compute, "wait_seconds": wait, "step_seconds": whole}
    return dict.fromkeys(STEP_COLUMNS, 0.0) | known | {"exchange_seconds": 0.1, "update_seconds": 0.02, "images": 8.0}


def three(slow_phase: str = "compute") -> pd.DataFrame:
    """Rank 1 is slow in two of three steps, rank 2 in one."""
    slow = step(0.36, 0.0) if slow_phase == "compute" else step(0.26, 0.0, input=0.11)
    quick = step(0.26, 0.1)
    return step_table(
        [Trace(0, steps=[quick] * 3), Trace(1, steps=[slow, slow, quick]), Trace(2, steps=[quick, quick, slow])]
    )


def test_each_rank_is_drawn_from_its_own_beginning() -> None:
    steps = three()
    assert list(steps.columns) == ["rank", "step", "start_seconds", *STEP_COLUMNS]
    for _, rows in steps.groupby("rank"):
        assert rows["step"].tolist() == [0, 1, 2]
        assert rows["start_seconds"].tolist() == pytest.approx([0.0, 0.5, 1.0])


@pytest.mark.parametrize("phase", ["compute", "input"])
def test_the_slow_rank_and_its_phase(phase: str) -> None:
    found = slowest(three(phase))
    assert (found.rank, found.phase, found.arrived_last, found.steps) == (1, phase, 2, 3)
    # Rank 1's mean is 2/3 x 0.1 above a quick rank's, rank 2's 1/3: half-way between ranks 0 and 2 is 1/6.
    assert found.behind_seconds == pytest.approx(0.1 * (2 / 3 - 1 / 6))
    assert found.phase_seconds == pytest.approx(found.behind_seconds)
    assert str(found) == (
        f"rank 1 is slowest: 0.0500 s a step behind the others' median, 0.0500 s of it in {phase}; "
        "arrived last in 2 of 3 steps"
    )


def test_time_that_no_phase_accounts_for_is_told() -> None:
    pause = step(0.26, 0.0)  # 0.11 s of the step are nowhere: a paused process
    found = slowest(step_table([Trace(0, steps=[step(0.26, 0.1)]), Trace(1, steps=[pause])]))
    assert (found.rank, found.phase) == (1, "other")
    assert found.phase_seconds == pytest.approx(0.1)


def test_the_table_of_ranks() -> None:
    table = rank_table(three())
    assert table["rank"].tolist() == [0, 1, 2]
    assert table["arrived_last"].tolist() == [0, 2, 1]
    assert table["late_seconds"].tolist() == pytest.approx([0.0, 0.2 / 3, 0.1 / 3])
    assert table["wait_seconds"].tolist() == pytest.approx([0.1, 0.1 / 3, 0.2 / 3])
    assert table["own_seconds"].tolist() == pytest.approx([0.28, 0.28 + 0.2 / 3, 0.28 + 0.1 / 3])


def test_a_server_is_no_worker() -> None:
    server = dict.fromkeys(STEP_COLUMNS, 0.0) | {"step_seconds": 0.5, "wait_seconds": 0.1}
    steps = pd.concat([three(), step_table([Trace(3, steps=[server] * 3)])], ignore_index=True)
    assert slowest(steps) == slowest(three())
    assert rank_table(steps)["rank"].tolist() == [0, 1, 2]


def test_rows_of_two_cells_are_refused() -> None:
    both = pd.concat([three(), three()], ignore_index=True)
    for function in (rank_table, slowest, chrome_trace):
        with pytest.raises(ValueError, match="give the rows of one cell and one round"):
            function(both)


def test_one_worker_has_nobody_to_be_compared_with() -> None:
    with pytest.raises(ValueError, match="1 worker in these steps has nobody to be compared with"):
        slowest(step_table([Trace(0, steps=[step(0.3, 0.0)])]))


def of_cell(steps: pd.DataFrame, strategy: str, number: int) -> pd.DataFrame:
    """Steps as a run folder holds them: of a cell, in a round."""
    cell = {"experiment": "timeline", "use_case": "SimpleBig", "strategy": strategy, "hosts": 1, "workers": 3}
    return steps.assign(**cell, variant="a", round=number)


def test_the_chrome_trace(tmp_path: Path) -> None:
    (path,) = write_traces(of_cell(three(), "allreduce", 0), tmp_path)
    events = json.loads(path.read_text())["traceEvents"]
    assert [event["args"]["name"] for event in events if event["ph"] == "M"] == ["rank 0", "rank 1", "rank 2"]
    drawn = [event for event in events if event["ph"] == "X"]
    of_step = [event for event in drawn if event["tid"] == 1 and event["args"]["step"] == 1]
    assert [event["name"] for event in of_step] == ["input", "compute", "exchange", "update"], "it never waited"
    assert of_step[0]["ts"] == pytest.approx(0.5e6)
    for before, after in itertools.pairwise(of_step):
        assert after["ts"] == pytest.approx(before["ts"] + before["dur"])
    total = sum(event["dur"] for event in drawn) / 1e6
    phases = [f"{name}_seconds" for name in ("input", "compute", "wait", "exchange", "update")]
    assert total == pytest.approx(three()[phases].to_numpy().sum())


def test_each_cell_has_a_trace_of_its_first_round(tmp_path: Path) -> None:
    cells = [of_cell(three("input"), "ddp", 1), of_cell(three(), "ddp", 0), of_cell(three(), "gossip", 1)]
    paths = write_traces(pd.concat(cells, ignore_index=True), tmp_path / "traces")
    assert sorted(path.name for path in paths) == [
        "timeline-SimpleBig-ddp-1-3-a.json",
        "timeline-SimpleBig-gossip-1-3-a.json",
    ]
    for path in paths:
        assert json.loads(path.read_text()) == chrome_trace(three()), "round 0 of one, the only round of the other"


def test_a_pipeline_as_a_chrome_trace_has_an_event_for_every_action(tmp_path: Path) -> None:
    actions = tables(rounds=2)["actions"]
    paths = write_action_traces(actions, tmp_path / "traces")
    assert len(paths) == len(set(paths)) == len(pipelines() + held()), "a file per cell, of its first round"
    (path,) = [path for path in paths if "equal_layers" in path.name]
    own = actions[(actions["partition"] == "equal_layers") & (actions["round"] == 0)]
    events = json.loads(path.read_text())["traceEvents"]
    drawn = [event for event in events if event["ph"] == "X"]
    assert len(drawn) == len(own) and {event["tid"] for event in drawn} == {0, 1}
    first = own[own["rank"] == 1].sort_values("start_seconds").iloc[0]
    event = next(event for event in drawn if event["tid"] == 1)
    assert (event["name"], event["args"]["stage"], event["args"]["micro_batch"]) == ("forward", 1, 0)
    assert (event["ts"], event["dur"]) == pytest.approx((1e6 * first["start_seconds"], 1e6 * first["seconds"]))
    assert [event["args"]["name"] for event in events if event["ph"] == "M"] == ["rank 0", "rank 1"]


def test_actions_of_two_cells_are_refused() -> None:
    with pytest.raises(ValueError, match=r"differ in experiment, .*round: give the rows of one cell and one round"):
        action_trace(tables(rounds=2)["actions"])
