"""Each policy at its own best, judged on seeds that did not choose."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fake_mitigation import stored
from lockstep.analysis.statistics import AnalysisError
from lockstep.analysis.stored import Stored, no_records
from lockstep.experiments.e11_straggler_mitigation.contenders import (
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
    mix,
    over,
    over_the_best,
    regret_table,
    runs_of,
    synchronous,
    time_table,
    undelayed,
)
from lockstep.experiments.e11_straggler_mitigation.made_up import (
    OTHERS,
    OWN,
    loss_over_nothing,
    partition_table,
    stand_in_table,
)
from lockstep.experiments.e11_straggler_mitigation.slow_nodes import (
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
    found = loss_over_nothing(made, "an LSTM stands in", "bad_node")
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
