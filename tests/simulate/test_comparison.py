"""Policies side by side, and the command that shows them."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from lockstep.commands.application import app
from lockstep.engine.forecasts.base import Forecast
from lockstep.engine.policies import POLICIES, Setting, policy_of
from lockstep.predict.cost_model import Costs
from lockstep.predict.link_model import AlphaBeta
from lockstep.simulate import Cluster
from lockstep.simulate.comparison import Trial, bound_seconds_per_sample, compare_policies, wasted_share
from lockstep.simulate.learner import SgdLearner
from lockstep.simulate.problems import Logistic
from lockstep.simulate.tasks import COLUMNS as TASK_COLUMNS
from lockstep.simulate.tasks import task_trace
from policy_runs import made, ran

SHARE, IMAGE_SECONDS = 10, 0.01


def trial(delays: str, workers: int = 4, updates: int = 50, loss: float | None = None) -> Trial:
    setting = Setting(workers, 100 * SHARE * workers, SHARE * workers)
    cluster = Cluster(workers, Costs(0.0, IMAGE_SECONDS, 0.0), AlphaBeta(0.0, 0.0))
    return Trial(setting, cluster, delays, updates, loss)


def named(*names: str) -> dict[str, functools.partial[object]]:
    return {name: functools.partial(policy_of, name, "") for name in names}


def test_a_bad_node_by_hand() -> None:
    """One of four takes three times as long. Waiting for it an update of 40 images takes 0.3 s; without it, one of 30
    takes 0.1 s. Nobody could do better than three workers at 100 images/s and one at a third of that: 333 images/s."""
    this = trial("bad_node:worker=3,slow=3")
    assert 1 / bound_seconds_per_sample(this) == pytest.approx(100 * (3 + 1 / 3), rel=1e-9)
    table = compare_policies(named("wait_for_all", "k_sync"), [this]).set_index("policy")  # type: ignore[arg-type]
    assert table.loc["wait_for_all", "seconds_per_sample"] == pytest.approx(0.3 / 40)
    k_sync = 0.1 / 30
    assert table.loc["k_sync", "seconds_per_sample"] == pytest.approx(k_sync, rel=0.02)
    own = table.loc["k_sync", "seconds_per_sample"]
    assert table.loc["k_sync", "mitigation"] == pytest.approx((0.0075 - own) / (0.0075 - 0.0025))
    assert table.loc["k_sync", "of_the_bound"] == pytest.approx((0.0075 - own) / (0.0075 - 0.003))
    assert table.loc["wait_for_all", "mitigation"] == 0.0
    assert table.loc["k_sync", "regret"] == 0.0 and table.loc["wait_for_all", "regret"] > 1.0


def test_what_a_policy_refuses_is_a_row_with_its_reason() -> None:
    table = compare_policies(named("wait_for_all", "standby"), [trial("none")]).set_index("policy")  # type: ignore[arg-type]
    assert "there is no node to take over" in table.loc["standby", "reason"]
    assert np.isnan(table.loc["standby", "seconds"]) and table.loc["wait_for_all", "reason"] == ""


def test_who_waits_for_ever_says_so() -> None:
    table = compare_policies(named("wait_for_all", "k_sync"), [trial("gone:worker=1,at=1.05")]).set_index("policy")  # type: ignore[arg-type]
    assert table.loc["wait_for_all", "reason"] == "waits for worker 1 for ever after 10 updates"
    learning = compare_policies(named("wait_for_all"), [trial("gone:worker=1,at=1.05", loss=0.001)])
    assert learning.loc[0, "reason"] == "waits for worker 1 for ever after 10 updates", "event by event, too"
    assert table.loc["k_sync", "reason"] == ""


def test_with_a_loss_the_time_to_it_is_compared() -> None:
    table = compare_policies(named("wait_for_all", "asynchronous"), [trial("pareto", loss=0.3)]).set_index("policy")  # type: ignore[arg-type]
    assert (table["reason"] == "").all()
    assert table.loc["asynchronous", "seconds"] < table.loc["wait_for_all", "seconds"]


def test_a_smaller_update_steps_less_far() -> None:
    """The linear scaling rule: half of the samples, half of the rate."""
    learner = SgdLearner(Logistic(samples=64, features=3), 0.4, workers=2, batch=8)

    class Half:
        samples = 4

    assert learner._share([(Half(), 0.5)], ()) == pytest.approx(0.5)  # type: ignore[list-item]
    assert learner._share([(Half(), 0.5)] * 3, ()) == 1.0, "never above that of a whole batch"  # type: ignore[list-item]


def test_the_bound_is_of_as_long_a_run() -> None:
    """100 tasks of 0.1 s; from 5 s on a worker needs 0.3 s for each: 50 x 0.1 + 50 x 0.3 = 20 s. Bug: of 200 tasks."""
    late = trial("bad_node:worker=3,slow=3,at=5", updates=100)
    assert 1 / bound_seconds_per_sample(late) == pytest.approx(3 * 100 + 1000 / 20, rel=1e-6)


def test_the_bound_counts_the_nodes_that_stand_by() -> None:
    """Bug: a standby node did work, and the bound was that of the others."""
    setting = Setting(5, 100 * SHARE * 4, SHARE * 4, standby=1)
    cluster = Cluster(5, Costs(0.0, IMAGE_SECONDS, 0.0), AlphaBeta(0.0, 0.0), standby=1)
    assert 1 / bound_seconds_per_sample(Trial(setting, cluster, "none", 10)) == pytest.approx(500)


def test_coded_work_that_was_recalled_wastes_its_parts() -> None:
    """Eight workers with two parts of eight each, of which one is late. Bug: a whole batch was taken to be wasted."""
    run = ran(made("gradient_coding_cyclic", "s=1"), "bad_node", updates=10)
    assert run.tasks is not None
    assert run.tasks.query("fate == 'recalled'")["samples"].eq(16).all()
    assert wasted_share(run) == pytest.approx(1 / 8)


# --- the command ---


def told(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["simulate", *words])
    return result.exit_code, result.output


def test_the_command_shows_a_table_with_its_legend() -> None:
    code, text = told("--policy", "wait_for_all,k_sync", "--delays", "bad_node", "--workers", "4", "--steps", "20")
    assert code == 0
    assert "delays bad_node, 4 workers, 20 updates of 128 images" in text
    lines = [line.split()[0] for line in text.splitlines() if line.split()]
    assert lines.index("k_sync") < lines.index("wait_for_all"), "the quickest first"
    for word in ("mitigation", "of the bound", "regret", "wasted"):
        assert word in text


def recorded(folder: Path, worker: int = 2) -> str:
    """Five steps of three workers, of which one takes 2 s and the others 1 s; in every second step half of it."""
    rows = [
        (one, step, (2.0 if one == worker else 1.0) / (1 + step % 2)) for step in range(5) for one in range(3)
    ]  # fmt: skip
    file = folder / "run.csv"
    pd.DataFrame(rows, columns=["worker", "step", "seconds"]).to_csv(file, index=False)
    return str(file)


def seconds_of(text: str, policy: str) -> float:
    """The column 'in all' of its line."""
    [line] = [line.split() for line in text.splitlines() if line.split()[:1] == [policy]]
    return float(line[2])


def test_what_would_have_been(tmp_path: Path) -> None:
    """The run itself: waiting for all takes what was recorded, 2 + 1 + 2 + 1 + 2 s. Bug: --what-if changed nothing."""
    file = recorded(tmp_path)
    code, text = told("--trace", file, "--what-if", "--policy", "wait_for_all,k_sync")
    assert code == 0 and "3 workers, 5 updates" in text
    assert seconds_of(text, "wait_for_all") == pytest.approx(8.0)
    assert seconds_of(text, "k_sync") < 8.0
    code, text = told("--trace", file, "--policy", "wait_for_all", "--step-seconds", "0.1", "--steps", "10")
    assert "3 workers, 10 updates" in text and seconds_of(text, "wait_for_all") == pytest.approx(2.0)


def test_what_would_have_been_says_which_setting_a_replay_chooses(tmp_path: Path) -> None:
    """One of four nodes took 4 s and the others 1 s, 60 times: a replay does not go on waiting for it."""
    rows = [(worker, step, 4.0 if worker == 3 else 1.0) for step in range(60) for worker in range(4)]
    pd.DataFrame(rows, columns=["worker", "step", "seconds"]).to_csv(tmp_path / "run.csv", index=False)
    words = ["--policy", "wait_for_all,choosing,deadline,deadline_by_replay", "--micro-batch", "4"]
    code, text = told("--trace", str(tmp_path / "run.csv"), "--what-if", *words)
    assert code == 0 and seconds_of(text, "deadline_by_replay") < 0.5 * seconds_of(text, "wait_for_all")
    [found] = [line for line in text.splitlines() if line.startswith("found by deadline_by_replay: ")]
    chosen = {kind: int(count) for kind, count in re.findall(r"chose (\w+) (\d+)", found)}
    assert sum(chosen.values()) >= 2 and "infinite" not in chosen
    assert "found by" not in told("--policy", "wait_for_all", "--delays", "none", "--steps", "5")[1]


def test_what_must_fit_fits_the_recorded_run(tmp_path: Path) -> None:
    """Bug: anytime mini-batches were given 0.1 s of a run whose steps take a second, and refused it."""
    rows = [(worker, step, 1.0) for step in range(12) for worker in range(2)]
    pd.DataFrame(rows, columns=["worker", "step", "seconds"]).to_csv(tmp_path / "run.csv", index=False)
    code, text = told("--trace", str(tmp_path / "run.csv"), "--what-if")
    assert code == 0 and seconds_of(text, "anytime") == pytest.approx(12.0, rel=0.1)


def test_a_trace_says_how_many_workers_there_are_unless_told(tmp_path: Path) -> None:
    """Bug: --workers was ignored beside a trace."""
    file = recorded(tmp_path)
    code, text = told("--trace", file, "--what-if", "--policy", "wait_for_all", "--standby", "1")
    assert code == 0 and "2 workers" in text, "one of those recorded stands by"
    code, text = told("--trace", file, "--policy", "wait_for_all", "--workers", "2")
    assert code == 0 and "2 workers" in text
    code, text = told("--trace", file, "--policy", "wait_for_all", "--workers", "4")
    assert code == 2 and "records 3 workers in all stages, fewer than workers=4" in " ".join(text.split())
    code, text = told("--trace", file, "--what-if", "--step-seconds", "1")
    assert code == 2 and "--what-if replays the recorded run" in " ".join(text.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--policy", "nobody"], "policy='nobody' does not exist; there are: wait_for_all"),
        (["--policy", "k_sync", "--options", "k=9"], "k=9 of 8 workers is not possible"),
        (["--policy", "k_sync", "--options", "s=1"], "option 's' does not exist"),
        (["--options", "k=1"], "--options 'k=1' are those of one policy"),
        (["--delays", "rain"], "'rain' does not exist; there are:"),
        (["--what-if"], "--what-if asks about a trace"),
        (["--trace", "none.csv", "--delays", "none"], "ask for two different things"),
        (["--trace", "none.csv"], "does not exist; give a CSV or Parquet file"),
        (["--step-seconds", "nan"], "--step-seconds nan is not possible"),
        (["--standby", "8"], "standby=8 of 8 workers"),
        (["--loss", "0"], "--loss 0.0 is not possible"),
        (["--loss", "nan"], "--loss nan is not possible"),
        (["--delays", "bad_node:worker=9"], "worker=9 does not exist; there are 8: 0 … 7"),
        (["--trace", "a,b.csv"], "a comma parts the options of delays"),
        (["--policy", "reassign", "--options", "forecast=oracle"], "take another forecaster"),
        (["--tasks", "t.csv"], "--tasks t.csv holds one run; name one policy"),
        (["--tasks", "t.txt", "--policy", "k_sync", "--delays", "none"], "--tasks t.txt is neither .csv nor .json"),
        (["--tasks", "no/t.csv", "--policy", "k_sync", "--delays", "none"], "the folder no does not exist"),
    ],
)
def test_what_is_refused(words: list[str], said: str) -> None:
    code, text = told(*words)
    assert code == 2 and said in " ".join(text.split())


def test_all_policies_have_a_number_but_those_that_lack_something() -> None:
    """Bug: local SGD was refused for micro-batches that it was given unasked, and anytime mini-batches computed for ten
    times a step."""
    code, text = told("--delays", "none", "--steps", "20", "--workers", "4")
    without = {line.partition(": ")[0]: line for line in text.splitlines() if line.partition(": ")[0] in POLICIES}
    assert code == 0 and set(without) == {"standby", "adaptive_k"}, without
    assert seconds_of(text, "anytime") == pytest.approx(2.0, rel=0.1)
    assert seconds_of(text, "local_sgd") == pytest.approx(2.0, rel=0.1)


def test_the_tasks_of_a_run_are_written_and_can_be_replayed(tmp_path: Path) -> None:
    words = ["--policy", "k_sync", "--delays", "pareto", "--steps", "5", "--workers", "4"]
    assert told(*words, "--tasks", str(tmp_path / "tasks.csv"))[0] == 0
    tasks = pd.read_csv(tmp_path / "tasks.csv")
    assert tuple(tasks.columns) == TASK_COLUMNS and set(tasks["worker"]) == {0, 1, 2, 3}
    assert told("--trace", str(tmp_path / "tasks.csv"), "--what-if", "--policy", "wait_for_all")[0] == 0
    code, text = told(*words, "--tasks", str(tmp_path / "tasks.json"))
    events = json.loads((tmp_path / "tasks.json").read_text())["traceEvents"]
    drawn = [event for event in events if event["ph"] == "X"]
    assert code == 0 and f"{len(tasks)} tasks written to" in text and len(drawn) == len(tasks)
    assert {event["name"] for event in drawn} == set(tasks["fate"])
    assert sum(event["dur"] for event in drawn) == pytest.approx(
        1e6 * (tasks["ended_seconds"] - tasks["began_seconds"]).sum()
    )
    with pytest.raises(ValueError, match="rows of one run"):
        task_trace(pd.concat([tasks, tasks]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "most_mib"),
    [
        (["--policy", "k_sync", "--options", "k=9500", "--steps", "1000"], 256),
        (["--policy", "dpro_sm", "--options", "forecast=best,stand_in=last", "--steps", "100"], 512),
        (["--policy", "choosing", "--steps", "100"], 512),
    ],
)
def test_ten_thousand_workers_fit_into_memory(words: list[str], most_mib: int) -> None:
    """Also with a forecaster, and with rounds that are kept to be replayed."""
    many = [*words, "--workers", "10000", "--delays", "pareto"]
    command = [sys.executable, "-m", "lockstep.commands.cli", "simulate", *many]
    done = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"([\d.]+) MiB of memory at the most", done.stdout)
    assert done.returncode == 0 and found is not None, done.stderr
    assert 0 < float(found[1]) <= most_mib


def test_a_round_of_workers_that_rested_is_seen_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: their tasks have other numbers, and 10 000 were seen one by one: 22 s in place of 4 s."""
    monkeypatch.setattr(Forecast, "observe", lambda *_: pytest.fail("one by one"))
    table = compare_policies({"wrangler": functools.partial(policy_of, "wrangler", "forecast=last")}, [trial("markov")])
    assert (table["reason"] == "").all()
