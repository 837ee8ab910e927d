"""Policies side by side, and the command that shows them."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from lockstep.commands.cli import app
from lockstep.engine.policies import Setting, policy_of
from lockstep.predict.cost_model import Costs
from lockstep.predict.link_model import AlphaBeta
from lockstep.simulate import Cluster
from lockstep.simulate.comparison import Trial, bound_seconds_per_sample, compare_policies
from lockstep.simulate.learner import SgdLearner
from lockstep.simulate.problems import Logistic

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
    assert table.loc["wait_for_all", "reason"] == "waits for ever after 10 updates"
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

    assert learner._rate([(Half(), 0.5)], ()) == pytest.approx(0.2)  # type: ignore[list-item]
    assert learner._rate([(Half(), 0.5)] * 3, ()) == pytest.approx(0.4), "never above that of a whole batch"  # type: ignore[list-item]


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


def test_what_would_have_been(tmp_path: Path) -> None:
    """A recorded run in which worker 2 took twice as long."""
    rows = [(worker, step, 2.0 if worker == 2 else 1.0) for step in range(5) for worker in range(3)]
    pd.DataFrame(rows, columns=["worker", "step", "seconds"]).to_csv(tmp_path / "run.csv", index=False)
    code, text = told("--trace", str(tmp_path / "run.csv"), "--what-if", "--policy", "wait_for_all,k_sync")
    assert code == 0 and "3 workers" in text
    code, text = told("--trace", str(tmp_path / "run.csv"), "--what-if", "--policy", "wait_for_all", "--standby", "1")
    assert code == 0 and "2 workers" in text, "one of those recorded stands by"


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
    ],
)
def test_what_is_refused(words: list[str], said: str) -> None:
    code, text = told(*words)
    assert code == 2 and said in " ".join(text.split())
