"""Tables of time alone: mitigation, what it takes, and scale."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fake_mitigation import IDEAL, KINDS, WAITING, stored
from lockstep.analysis.statistics import AnalysisError
from lockstep.analysis.stored import Stored, no_records
from lockstep.experiments.e11_straggler_mitigation.contenders import (
    BY_LAST_VALUE,
    CONTENDERS,
    DOLLY,
    DPRO_GRADIENT,
    DPRO_SHARES,
    DPRO_STANDBY,
    GRASS,
    WAIT,
)
from lockstep.experiments.e11_straggler_mitigation.mitigation import (
    BOUND,
    gain_of_scale,
    mean_mitigation,
    mitigation,
    mitigation_table,
    mix_ratio,
    scale_table,
    stage_table,
)
from lockstep.experiments.e11_straggler_mitigation.prices import (
    held_gradients,
    nodes_of,
    nodes_over_dpro_sm,
    redundancy_table,
    table2,
)
from lockstep.experiments.e11_straggler_mitigation.rows import kind_name, kinds_of, rows_of


@pytest.fixture(scope="module")
def made() -> Stored:
    return stored(saved={DPRO_SHARES: 0.8, (DPRO_SHARES, "bad_node"): 0.95}, only=["throughput"])


def changed(old: Stored, column: str, value: object, **where: object) -> Stored:
    """The same with one column of some rows of `policies` set."""
    table = old.tables["policies"].copy()
    chosen = np.logical_and.reduce([table[name] == wanted for name, wanted in where.items()])
    assert chosen.any()
    table.loc[chosen, column] = value
    return Stored(old.records, {"policies": table}, old.assumptions)


def test_mitigation_is_the_mean_of_what_each_seed_saves(made: Stored) -> None:
    found = mitigation(made, DPRO_SHARES, "bad_node")
    assert found is not None and found.rounds == 10 and found.low < 0.95 < found.high
    mean = mean_mitigation(made, DPRO_SHARES)
    assert mean is not None and mean.value == pytest.approx((0.8 + 0.8 + 0.95) / 3, abs=0.01)
    zero = mitigation(made, WAIT, "bad_node")
    assert zero is not None and zero.value == 0


def test_the_bound_stands_above_what_is_undelayed(made: Stored) -> None:
    """Nobody waits there, not even for messages, so it may save more than all."""
    table = mitigation_table(made)
    bound = table[table["contender"] == BOUND].set_index("delays")
    assert bound["mitigation"].between(1.05, 1.15).all() and (bound["of_the_bound"] == 1).all()
    assert bound["times_undelayed"].to_numpy() == pytest.approx(0.9)
    assert set(table["delays"]) == set(KINDS), "without delays there is nothing to mitigate"


def test_one_seed_that_waits_for_ever_leaves_no_mean(made: Stored) -> None:
    """A mean over the other seeds would hide it."""
    where = {"experiment": "throughput", "contender": GRASS, "delays": "bad_node", "seed": 3}
    stuck = made
    for column, value in (("seconds_per_sample", np.nan), ("reason", "waits for ever")):
        stuck = changed(stuck, column, value, **where)
    assert mitigation(stuck, GRASS, "bad_node") is None and mean_mitigation(stuck, GRASS) is None
    assert mitigation(stuck, GRASS, "exponential") is not None
    with pytest.raises(AnalysisError, match="waits for ever"):
        mix_ratio(stuck, GRASS, WAIT)
    row = mitigation_table(stuck).set_index(["contender", "delays"]).loc[(GRASS, "bad_node")]
    assert np.isnan(row["mitigation"]) and row["reason"] == "waits for ever"


def test_a_mix_is_paired_by_seed(made: Stored) -> None:
    found = mix_ratio(made, WAIT, DPRO_SHARES)
    left = [WAITING - saved * (WAITING - IDEAL) for saved in (0.8, 0.8, 0.95)]
    assert found.value == pytest.approx(WAITING / np.prod(left) ** (1 / 3), rel=0.01) and found.rounds == 10
    with pytest.raises(AnalysisError, match="no kind of delays"):
        mix_ratio(made, WAIT, "nobody")


def test_nodes_count_copies_and_those_that_stand_by(made: Stored) -> None:
    dolly, standby = nodes_of(made, DOLLY), nodes_of(made, DPRO_STANDBY)
    assert dolly is not None and dolly.value == pytest.approx(32, rel=0.01)
    assert standby is not None and standby.value == pytest.approx(17, rel=0.01)
    ratio = nodes_over_dpro_sm(made, DOLLY)
    assert ratio is not None and ratio.value == pytest.approx(32 / 17, rel=0.01)


def test_a_price_is_an_assumption_and_ratios_do_not_depend_on_it(made: Stored) -> None:
    dear = replace(made, assumptions={"node_usd_per_hour": 2.0})
    assert table2(dear)["usd_per_hour"].iloc[-1] == pytest.approx(34, rel=0.01)
    assert table2(made)["usd_per_hour"].iloc[-1] == pytest.approx(17 * 0.399, rel=0.01)
    assert table2(dear)["over_dpro_sm"].tolist() == table2(made)["over_dpro_sm"].tolist()
    assert table2(made)["published_over_dpro_sm"].round(2).tolist() == [5.44, 12.27, 12.27, 5.44, 1.0, 1.0]


def test_every_policy_has_a_row_of_what_it_takes(made: Stored) -> None:
    table = redundancy_table(made).set_index("contender")
    assert set(table.index) == set(CONTENDERS)
    assert table.loc[DOLLY, "computed"] == pytest.approx(2, rel=0.01) and table.loc[DPRO_STANDBY, "standby"] == 1
    assert table.loc[WAIT, "messages"] == pytest.approx(34)
    assert held_gradients(DPRO_GRADIENT, 16) > 0 == held_gradients(DPRO_SHARES, 16) == held_gradients(WAIT, 16)


def test_stages_are_of_delays_that_last(made: Stored) -> None:
    table = stage_table(made)
    assert list(dict.fromkeys(table["kind"])) == ["bad node", "Markov states"]
    assert table["stage"].iloc[0] == BOUND and table["stage"].iloc[1].startswith("nothing")


def test_scale_says_how_much_more_is_gained_with_more_workers() -> None:
    more = stored(seeds=6, scaled=1.8, only=["scale"])
    table = scale_table(more)
    waits = table[table["contender"] == WAIT]
    assert waits["workers"].tolist() == [16, 1024] and waits["times_undelayed"].to_numpy() == pytest.approx(2, rel=0.05)
    gained = gain_of_scale(more, BY_LAST_VALUE, "pareto")
    assert gained.low > 1 and gained.value == pytest.approx((1 / 0.55) / (1 / 0.75), rel=0.05)
    same = gain_of_scale(stored(seeds=6, only=["scale"]), BY_LAST_VALUE, "pareto")
    assert same.low <= 1 <= same.high
    with pytest.raises(AnalysisError, match="two numbers of workers"):
        gain_of_scale(more, "nobody", "pareto")


def test_rows_are_of_one_experiment_and_kinds_have_names(made: Stored) -> None:
    rows = rows_of(made, "throughput")
    assert kinds_of(rows) == KINDS and not rows.duplicated(["delays", "seed", "contender"]).any()
    assert [kind_name(kind) for kind in KINDS] == ["exponential pauses", "Markov states", "bad node"]
    again = Stored(made.records, {"policies": made.tables["policies"].iloc[[0, 0]]})
    assert len(rows_of(again, "throughput")) == 1, "a seed that stands twice is one"
    assert rows_of(no_records(), "throughput").empty
