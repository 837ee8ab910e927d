"""Each policy at its own best, judged on seeds that did not choose."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from fake_mitigation import stored
from lockstep.analysis.statistics import AnalysisError
from lockstep.analysis.stored import Stored, no_records
from lockstep.experiments.e11_straggler_mitigation import EXPERIMENT
from lockstep.experiments.e11_straggler_mitigation.advice import advice, advice_table
from lockstep.experiments.e11_straggler_mitigation.contenders import (
    CODING,
    DPRO_SHARES,
    DROP_ONE,
    LEARNERS,
    NEVER_WAIT,
    NOTHING_STANDS_IN,
    OURS,
    SHUFFLED,
    STAY,
    WAIT,
)
from lockstep.experiments.e11_straggler_mitigation.learning import (
    at_best,
    at_their_best,
    best_setting,
    intervals_by_kind,
    mix,
    over,
    over_the_best,
    regret_table,
    runs_of,
    synchronous,
    time_table,
    undelayed,
)
from lockstep.experiments.e11_straggler_mitigation.learning_findings import paper_network
from lockstep.experiments.e11_straggler_mitigation.made_up import (
    OTHERS,
    OWN,
    loss_over,
    partition_table,
    stand_in_table,
)
from lockstep.experiments.e11_straggler_mitigation.mitigation import rate_kept
from lockstep.experiments.e11_straggler_mitigation.slow_nodes import (
    PAPER,
    SMALL,
    agreements,
    networks_table,
    rival_ratio,
    rivals_table,
    slow_nodes_in,
    slow_nodes_table,
)


@pytest.fixture(scope="module")
def made() -> Stored:
    return stored()


def runs(times: dict[tuple[int, float, int], float]) -> pd.DataFrame:
    """(share, rate, seed) -> seconds to the loss, infinite for one that missed it."""
    rows = [
        {"delays": "pareto", "seed": seed, "per_worker_batch_size": share, "learning_rate": rate, "time": time}
        for (share, rate, seed), time in times.items()
    ]
    return pd.DataFrame(rows)


def test_no_seed_judges_the_setting_that_it_chose() -> None:
    """Even seeds like the first setting, odd ones the second: each is judged at what the others chose."""
    table = runs({(8, 0.1, 0): 1, (16, 0.1, 0): 2, (8, 0.1, 2): 1, (16, 0.1, 2): 2, (8, 0.1, 1): 4, (16, 0.1, 1): 3})
    judged = at_best(table, ["pareto"]).set_index("seed")["time"]
    assert judged.sort_index().tolist() == [2, 4, 2]
    assert at_best(table[table["seed"] != 1], ["pareto"]).empty, "without seeds of both parities nothing is judged"


def test_a_setting_that_misses_the_loss_is_no_best_one() -> None:
    table = runs({(8, 0.1, 0): 1, (8, 0.1, 2): np.inf, (16, 0.1, 0): 9, (16, 0.1, 2): 9})
    assert best_setting(table) == (16, 0.1)
    assert best_setting(table.iloc[:0]) is None
    one = runs({(8, 0.1, 0): 5, (16, 0.1, 2): 1, (8, 0.1, 4): 3, (16, 0.1, 4): 4})
    assert best_setting(one) == (8, 0.1), "settings are compared on the seeds that both have"


def test_every_policy_has_a_setting_of_its_own(made: Stored) -> None:
    best = at_their_best(made)
    rates = best.groupby("contender")["learning_rate"].unique()
    assert set(best["contender"]) == set(LEARNERS) and (best["per_worker_batch_size"] == 8).all()
    assert rates[NEVER_WAIT].tolist() == [0.05] and rates[WAIT].tolist() == [0.2]


def test_times_are_over_waiting_for_all_without_delays_and_paired(made: Stored) -> None:
    ours, waits = mix(made, OURS), mix(made, WAIT)
    assert ours is not None and ours.value == pytest.approx(1.3, rel=0.01) and ours.half_width < 0.02, "pace cancels"
    assert waits is not None and waits.value == pytest.approx(2, rel=0.01)
    assert over(made, OURS, DROP_ONE).value == pytest.approx(1.3 / 1.65, rel=0.01)
    base = undelayed(made, WAIT)
    assert base is not None and base.value == 1
    cost = undelayed(made, OURS)
    assert cost is not None and cost.value == pytest.approx(1.02, rel=0.02)


@pytest.mark.slow
def test_a_missed_loss_is_no_time_and_no_rival() -> None:
    lost = stored(missed=[(DPRO_SHARES, "bad_node")])
    assert mix(lost, DPRO_SHARES) is None
    row = time_table(lost).set_index("contender").loc[DPRO_SHARES]
    assert row["missed"] == "bad node (10)" and np.isinf(row["largest_regret"])
    with pytest.raises(AnalysisError, match="did not reach the loss"):
        over(lost, OURS, DPRO_SHARES)
    assert over_the_best(lost, OURS, [DPRO_SHARES, DROP_ONE]).value == pytest.approx(1.3 / 1.65, rel=0.01)
    with pytest.raises(AnalysisError):
        over_the_best(lost, DPRO_SHARES, [DROP_ONE])


def test_the_best_of_several_rivals_pays_for_being_chosen(made: Stored) -> None:
    alone, among = over(made, OURS, DROP_ONE), over_the_best(made, OURS, synchronous())
    assert among.value == alone.value and among.high > alone.high, "the quickest that waits is first n - 1"
    assert OURS not in synchronous() and NEVER_WAIT not in synchronous() and DROP_ONE in synchronous()


def test_regret_is_above_the_best_of_the_kind() -> None:
    table = regret_table(stored(times={(OURS, "bad_node"): 1.0}))
    assert table.loc[OURS, "bad_node"] == 0 and table.loc[NEVER_WAIT, "exponential"] == 0
    assert table.loc[OURS, "exponential"] == pytest.approx(1.3 / 1.25 - 1, abs=0.01)


def test_times_are_images_times_seconds_per_image(made: Stored) -> None:
    table = time_table(made)
    assert (table["samples_ratio"] * table["rate_ratio"]).to_numpy() == pytest.approx(table["mix"].to_numpy())


def test_slow_nodes_are_counted_and_none_is_the_base(made: Stored) -> None:
    texts = ("none", "bad_node", "bad_node:nodes=3", "bad_node:nodes=2,slow=4")
    assert [slow_nodes_in(text) for text in texts] == [0, 1, 3, 2]
    table = slow_nodes_table(made)
    waits = table[table["contender"] == WAIT]
    assert waits["nodes"].tolist() == [0, 1, 2] and waits["times"].to_numpy() == pytest.approx([1, 2, 2], rel=0.02)
    assert table["accuracy"].between(78, 82).all()


def test_rivals_are_at_the_rate_that_suits_them(made: Stored) -> None:
    table = rivals_table(made).set_index(["workers", "contender"])
    assert table.loc[(8, NEVER_WAIT), "rates"] == "0.05" and table.loc[(8, OURS), "rates"] == "0.2"
    assert table.loc[(32, OURS), "over_asynchronous"] == pytest.approx(1.1, rel=0.01)
    assert rival_ratio(made, 8, OURS, NEVER_WAIT).low > 1
    with pytest.raises(AnalysisError, match="128 workers"):
        rival_ratio(made, 128, OURS, NEVER_WAIT)


def test_stand_ins_are_beside_nothing(made: Stored) -> None:
    found = loss_over(made, "an LSTM stands in", "bad_node", NOTHING_STANDS_IN)
    assert found is not None and found.value == pytest.approx(2, rel=0.05)
    table = stand_in_table(made).set_index(["delays", "contender"])
    assert table.loc[("bad_node", NOTHING_STANDS_IN), "loss_over_nothing"] == 1
    assert np.isnan(table.loc[("gone:at=2", WAIT), "loss"]) and "for ever" in table.loc[("gone:at=2", WAIT), "reason"]
    assert table.loc[("bad_node", "an LSTM stands in"), "cosine"] == pytest.approx(0.02, abs=0.02)


def test_the_missing_workers_images_pay_only_where_they_stay(made: Stored) -> None:
    table = partition_table(made).set_index(["data", "delays", "part"])
    assert table.loc[(STAY, "bad_node", OWN), "ratio"] == pytest.approx(2, rel=0.05)
    for where in ((SHUFFLED, "bad_node", OWN), (STAY, "bad_node", OTHERS), (STAY, "exponential", OWN)):
        assert table.loc[where, "ratio"] == pytest.approx(1, rel=0.05)


def test_without_records_tables_are_empty() -> None:
    nothing = no_records()
    for table in (time_table, regret_table, slow_nodes_table, rivals_table, stand_in_table, partition_table):
        assert table(nothing).empty, table.__name__
    assert runs_of(pd.DataFrame({"seconds_to_loss": [np.nan, 1.0]}))["time"].tolist() == [np.inf, 1.0]


def test_the_papers_network_is_compared_under_the_same_delays_and_shares(made: Stored) -> None:
    table = networks_table(made)
    assert set(table["network"]) == {PAPER, SMALL} and len(table) == 2 * 6 * (1 + 3)
    own = table[(table["contender"] == OURS) & (table["delays"] == "bad_node")].set_index("network")
    assert own["over_waiting"].to_numpy() == pytest.approx(1.3 / 2.0, rel=0.02)
    assert agreements(made) == (5 * 3, 0, 0), "all are faster than waiting for all with both networks"


def test_a_policy_that_is_slower_with_the_papers_network_alone_disagrees(made: Stored) -> None:
    policies = made.table("policies").copy()
    ours = (policies["experiment"] == "paper_network") & (policies["contender"] == OURS)
    slow = ours & (policies["delays"] != "none")
    policies.loc[slow, "seconds_to_loss"] *= 3
    changed = Stored(made.records, {"policies": policies})
    assert agreements(changed) == (4 * 3, 3, 0)
    assert "12 come out with the paper's CNN as with the small network, 3 the other way round" in paper_network(changed)
    lost = policies.assign(seconds_to_loss=policies["seconds_to_loss"].mask(slow))
    missing = Stored(made.records, {"policies": lost})
    assert agreements(missing) == (4 * 3, 0, 3), "where the loss is missed, nothing is told"
    assert "never reach the loss with deadline" in paper_network(missing)


def test_without_the_papers_network_nothing_is_said_of_it() -> None:
    assert networks_table(no_records()).empty and agreements(stored(only=["time_to_loss"])) == (0, 0, 0)


def test_advice_is_judged_on_another_seed_and_by_the_best_of_the_kind() -> None:
    found = stored(saved={DROP_ONE: 0.9, (DROP_ONE, "bad_node"): -0.5}, only=["throughput", "advice"])
    table = advice_table(found).set_index("delays")
    assert table.loc["exponential", ["advised", "times", "best"]].tolist() == [DROP_ONE, 10, DROP_ONE]
    assert table.loc["exponential", "followed"] == pytest.approx(1) and table.loc["exponential", "waiting"] > 1.7
    policies = found.table("policies").copy()
    wrong = (policies["experiment"] == "advice") & (policies["contender"] == CODING)
    policies.loc[wrong, "seconds_per_sample"] /= 10
    misled = Stored(found.records, {"policies": policies})
    shown = advice_table(misled).set_index("delays").loc["exponential"]
    assert shown["advised"] == CODING and shown["followed"] > 1.3
    assert "needs 1." in advice(misled) and advice(misled) != advice(found)
    assert "clearly slower than waiting for all under no kind." in advice(misled), "coding saves half here"


def test_advice_that_is_worse_than_waiting_says_under_which_kinds() -> None:
    """It once named the kind with the largest mean alone, however wide its interval."""
    found = stored(saved={DROP_ONE: 0.9, CODING: -0.5}, only=["throughput", "advice"])
    policies = found.table("policies").copy()
    wrong = (policies["experiment"] == "advice") & (policies["contender"] == CODING)
    policies.loc[wrong & (policies["delays"] == "exponential"), "seconds_per_sample"] /= 10
    text = advice(Stored(found.records, {"policies": policies}))
    most = "By the lower ends of the intervals, it costs most under exponential pauses: "
    assert f"slower than waiting for all under exponential pauses. {most}" in text


def test_advice_of_one_seed_is_not_judged() -> None:
    assert advice_table(stored(seeds=1, only=["throughput", "advice"])).empty


def test_times_by_kind_have_their_intervals(made: Stored) -> None:
    """Bug: by kind of delays the times to a loss had no interval, and nobody saw which of them differ."""
    table = intervals_by_kind(made).set_index(["delays", "contender"])
    found = table.loc[("bad_node", OURS)]
    assert found["times_low"] < found["times"] < found["times_high"]
    assert found["over_async"] == pytest.approx(1.3 / 1.25, rel=0.02) and found["over_async_low"] > 1
    shown = EXPERIMENT.tables["by_kind"](made).set_index("kind")
    assert re.fullmatch(r"1\.\d\d \[1\.\d\d, 1\.\d\d\]", shown.loc["bad node", f"{OURS} over {NEVER_WAIT}"])


def test_what_is_kept_of_the_rate_is_the_undelayed_time_over_the_delayed() -> None:
    made = stored(saved={OURS: 0.5}, only=["throughput"])
    found = rate_kept(made, OURS)
    assert found is not None and found.value == pytest.approx(0.8 / 1.2, rel=0.02)
    waiting = rate_kept(made, WAIT)
    assert waiting is not None and waiting.value == pytest.approx(0.5, rel=0.02)
