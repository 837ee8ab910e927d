"""Tables of notebook 07, on made-up records whose means and ratios are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from fake_distribution import not_run, scaled, without
from fake_learning import (
    ACCURACY,
    CANDIDATES,
    DROPOUT,
    FEW_UPDATES,
    GAINS,
    GAP,
    IMAGES,
    LARGE,
    LARGE_GAIN,
    LINEAR,
    MIDDLE,
    NO_TENSORFLOW,
    NOISE,
    OPERATORS,
    SPEED,
    TENSORFLOW,
    VALIDATION,
    confusion,
    operators,
    records,
)
from lockstep.analysis.seeds import SETTING, mean_of, way, wilson
from lockstep.analysis.statistics import AnalysisError, select
from lockstep.engine.training.scores import DIVERGED
from lockstep.experiments.e07_convlstm_batch_size.tables.accuracy import (
    coverage_table,
    gain_table,
    lstm_table,
    paired_table,
    seed_accuracy_table,
    setting_text,
)
from lockstep.experiments.e07_convlstm_batch_size.tables.choice import beside_plain, choice_table, quoted
from lockstep.experiments.e07_convlstm_batch_size.tables.classes import class_table, matrix_table
from lockstep.experiments.e07_convlstm_batch_size.tables.speed import (
    framework_operator_table,
    framework_table,
    price_table,
    speed_table,
)
from lockstep.experiments.fixed_batch import trained
from lockstep.records import read_tables

PLAIN = {"use_case": "Pneumonia", "network": "cnn", "framework": "torch", "rule": "constant"}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return records()


def rows(table: pd.DataFrame, **conditions: object) -> pd.DataFrame:
    for name, value in conditions.items():
        table = table[table[name] == value]
    return table


def one(table: pd.DataFrame, **conditions: object) -> pd.Series:
    (row,) = [row for _, row in rows(table, **conditions).iterrows()]
    return row


def test_accuracy_stands_against_batch_size_way_rule_and_length(frame: pd.DataFrame) -> None:
    table = seed_accuracy_table(frame, "learning")
    own = rows(table, **PLAIN)
    data = {"way": "data parallel", "budget": "10 epochs"}
    assert one(own, **data, global_batch_size=32)["accuracy"] == pytest.approx(84)
    assert one(own, **data, global_batch_size=512)["accuracy"] == pytest.approx(84 + 100 * LARGE)
    assert one(own, way="model parallel")["accuracy"] == pytest.approx(84)
    assert one(own, budget="40 updates")["accuracy"] == pytest.approx(84 + 100 * FEW_UPDATES)
    rising = one(rows(table, use_case="Pneumonia", network="cnn"), rule="linear, 2 epochs warm-up")
    assert rising["accuracy"] == pytest.approx(84 + 100 * (LARGE + LINEAR)) and rising["global_batch_size"] == 512
    assert len(rows(table, framework="tensorflow")) == 6 and set(table["use_case"]) == {"Pneumonia", "LeafDisease"}


def test_the_interval_is_over_seeds_and_the_runs_over_images(frame: pd.DataFrame) -> None:
    table = seed_accuracy_table(frame, "learning", confusion())
    row = one(rows(table, **PLAIN), way="model parallel")
    assert 82 <= row["accuracy_low"] < 84 < row["accuracy_high"] <= 86 and row["seeds"] == 10
    low, high = wilson(504, 600)
    assert (row["run_low"], row["run_high"]) == pytest.approx((100 * low, 100 * high))
    assert row["run_high"] - row["run_low"] > row["accuracy_high"] - row["accuracy_low"]
    later = seed_accuracy_table(frame, "learning", confusion().assign(round=lambda counted: counted["round"] + 40))
    pd.testing.assert_frame_equal(later, seed_accuracy_table(frame, "learning", confusion()))  # a round is no seed
    blind = seed_accuracy_table(frame, "learning")
    assert blind["run_low"].isna().all() and blind["accuracy"].equals(table["accuracy"])


def test_the_generalisation_gap_is_paired_by_seed(frame: pd.DataFrame) -> None:
    row = one(rows(seed_accuracy_table(frame, "learning"), **PLAIN), way="model parallel")
    assert (row["gap"], row["gap_low"], row["gap_high"]) == pytest.approx((100 * GAP,) * 3), (
        "no spread: seeds are paired"
    )
    assert (
        row["train"] == pytest.approx(94) and row["balanced"] == pytest.approx(80) and row["auc"] == pytest.approx(0.89)
    )


def test_no_accuracy_lies_beyond_what_a_share_can_be() -> None:
    """Of few seeds that lie far apart tables and figures once had accuracies such as [-19.44, 121.13] %."""
    few = records(5)
    wild = few.assign(test_accuracy=np.where(few["round"] % 2, 0.98, 0.2), validation_accuracy=few["round"] % 2)
    assert mean_of(pd.Series([0.2, 0.98, 0.2, 0.98, 0.2])).high > 1
    for table in (seed_accuracy_table(wild, "learning"), seed_accuracy_table(wild, "candidates")):
        for name in ("accuracy", "validation"):
            ends = table[[f"{name}_low", f"{name}_high"]].dropna()
            assert ends.empty or (ends.to_numpy() == [0.0, 100.0]).all()
    assert seed_accuracy_table(records(2), "learning")["accuracy_high"].isna().all(), "no interval is not 100 %"


def test_wilsons_interval_is_the_textbooks() -> None:
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    with pytest.raises(AnalysisError, match="11 right of 10"):
        wilson(11, 10)


def test_the_mean_has_an_interval_that_holds_whenever_we_look() -> None:
    """Student's holds at a number of seeds that was fixed before; ours goes on until something is decided."""
    found = mean_of(pd.Series([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert found.value == 3 and found.low < 3 - 2.776445 * 1.581139 / 5**0.5 < found.high
    single = mean_of(pd.Series([0.5]))
    assert single.value == 0.5 and (single.low, single.high) == (-np.inf, np.inf), "one seed has no spread"
    with pytest.raises(AnalysisError, match="at least one value"):
        mean_of(pd.Series([], dtype=float))


def test_a_mean_of_equal_values_lies_within_its_interval() -> None:
    """By rounding it can lie a hair outside, and matplotlib refuses an error bar of negative length."""
    for count in range(2, 12):
        for value in (0.1, 0.7, 37.4 / 100, 2 / 3):
            found = mean_of(pd.Series([value] * count))
            assert found.low <= found.value <= found.high


def test_validation_data_choose_and_finalists_are_checked(frame: pd.DataFrame) -> None:
    table = choice_table(frame).set_index("network")
    assert set(table.index) == {"cnn", "convlstm"} and set(table["consistent"]) == {"yes"}
    row = table.loc["cnn"]
    assert row["chosen"] == row["finalists"] == "batch 32, 10 epochs, dropout 0.3"
    assert row["validation"] == pytest.approx(100 * VALIDATION["dropout"]) and row["candidates"] == len(CANDIDATES)
    assert row["accuracy"] == pytest.approx(84 + 100 * DROPOUT * 0.6) and row["seeds"] == 10
    other = scaled(frame, "validation_accuracy", 1.1, network="cnn", class_weights="balanced")
    table = choice_table(other).set_index("network")
    assert table["consistent"].to_dict() == {"cnn": "no", "convlstm": "yes"} and pd.isna(table.loc["cnn", "accuracy"])


@pytest.mark.slow
def test_of_several_finalists_the_one_that_validation_chose_is_quoted(frame: pd.DataFrame) -> None:
    """It does not matter that another one does better on the test split."""
    extra = select(frame, {"experiment": "selected", "network": "cnn"})
    extra = extra.assign(dropout=0.0, test_accuracy=extra["test_accuracy"] + 0.05)
    both = pd.concat([extra, frame], ignore_index=True)
    row = choice_table(both).set_index("network").loc["cnn"]
    assert row["finalists"] == "batch 32, 10 epochs | batch 32, 10 epochs, dropout 0.3" and row["consistent"] == "yes"
    assert row["accuracy"] == pytest.approx(84 + 100 * DROPOUT * 0.6)
    told = rows(beside_plain(both), use_case="Pneumonia", network="cnn").groupby("setting")["what"].agg(sorted)
    assert told.to_dict() == {
        "batch 32, 10 epochs": ["finalist", "plain"], "batch 32, 10 epochs, dropout 0.3": ["chosen"]
    }  # fmt: skip
    kept = quoted(both, both)
    assert kept.reset_index(drop=True).equals(frame.reset_index(drop=True))
    counted = pd.concat([confusion().assign(dropout=0.0), confusion()], ignore_index=True)
    left = rows(quoted(both, counted), experiment="selected", network="cnn")
    assert len(left) and set(left["dropout"]) == {0.3}
    other = scaled(both, "validation_accuracy", 1.1, network="cnn", class_weights="balanced")
    left = rows(quoted(other, other), experiment="selected")
    assert set(left["network"]) == {"convlstm"}, "of the CNN no finalist is validation's choice: none is quoted"
    assert quoted(both, None).empty


def test_a_confusion_table_of_a_file_is_told_apart_as_records_are(frame: pd.DataFrame, tmp_path: Path) -> None:
    confusion().to_csv(tmp_path / "confusion.csv", index=False)
    stored = read_tables(tmp_path)["confusion"]
    assert len(rows(quoted(frame, stored), experiment="selected")) == len(rows(stored, experiment="selected"))


def test_how_decided_a_choice_is_is_told(frame: pd.DataFrame) -> None:
    row = choice_table(frame).set_index("network").loc["cnn"]
    assert row["runner_up"] == "batch 32, 10 epochs, class weights balanced, augmentation shift"
    ahead = 100 * (VALIDATION["dropout"] - VALIDATION["balanced"])
    assert [row["lead"], row["lead_low"], row["lead_high"]] == pytest.approx([ahead] * 3), "the same in every seed"
    lower = scaled(frame, "validation_loss", 0.5, network="cnn", class_weights="balanced")
    assert choice_table(lower).set_index("network").loc["cnn", "lowest_loss"] == row["runner_up"]
    alone = without(frame, experiment="candidates", class_weights="balanced")
    alone = without(alone, experiment="candidates", dropout=0.0)
    row = choice_table(alone).set_index("network").loc["cnn"]
    assert row["candidates"] == 1 and row["runner_up"] == "" and pd.isna(row["lead"])


def test_a_candidate_that_lacks_seeds_keeps_the_choice_open(frame: pd.DataFrame) -> None:
    """One whose worker failed in four rounds was compared by its fifth alone."""
    worst = (frame["experiment"] == "candidates") & (frame["network"] == "cnn") & (frame["class_weights"] == "balanced")
    failed = frame.assign(status=frame["status"].mask(worst & (frame["round"] > 0), "failed"))
    table = choice_table(failed).set_index("network")
    assert table.loc["cnn", "consistent"] == "1 of 3 candidates lack seeds that others have"
    assert table.loc["convlstm", "consistent"] == "yes"


def test_whom_the_time_sufficed_for_one_more_seed_is_not_judged_by_one_more(frame: pd.DataFrame) -> None:
    """Bug: a run that ended between two candidates of a seed left the choice open until another one."""
    own = (frame["experiment"] == "candidates") & (frame["network"] == "cnn")
    last = own & (frame["seed"] == frame["seed"].max())
    first = frame[last & (frame["dropout"] == 0.0) & (frame["class_weights"] == "none")]
    one_more = pd.concat([frame[~last], first.assign(validation_accuracy=1.0)])
    assert_frame_equal(choice_table(one_more), choice_table(frame[~last]))
    assert set(choice_table(one_more)["consistent"]) == {"yes"}


def test_a_new_candidate_with_its_first_seed_leaves_the_choice_open(frame: pd.DataFrame) -> None:
    """The others are not judged by that one seed alone."""
    own = (frame["experiment"] == "candidates") & (frame["network"] == "cnn")
    later = frame[~(own & (frame["dropout"] > 0) & (frame["seed"] > 0))]
    table = choice_table(later).set_index("network")
    assert table.loc["cnn", "consistent"] == "1 of 3 candidates lack seeds that others have"
    two_beside_one = later[~(own[later.index] & (later["seed"] > 1))]
    table = choice_table(two_beside_one).set_index("network")
    assert table.loc["cnn", "consistent"] == "1 of 3 candidates lack seeds that others have"


def test_a_candidate_that_only_failed_shortens_no_others_seeds(frame: pd.DataFrame) -> None:
    """Bug: a run that gave it up at its first seed would have judged all others by that seed."""
    own = (frame["experiment"] == "candidates") & (frame["network"] == "cnn") & (frame["dropout"] > 0)
    last = frame["seed"].max()
    failed = frame.assign(status=frame["status"].mask(own, "failed"))
    given_up = failed[~(own & (failed["seed"] == last))]
    assert_frame_equal(choice_table(given_up), choice_table(failed))
    assert choice_table(given_up).set_index("network").loc["cnn", "consistent"] == "no", "the finalist failed"


def test_a_choice_without_its_half_says_which_is_missing(frame: pd.DataFrame) -> None:
    table = choice_table(without(frame, experiment="candidates"))
    assert set(table["consistent"]) == {"no candidate was measured"} and table["accuracy"].isna().all()
    table = choice_table(without(frame, experiment="selected"))
    assert set(table["consistent"]) == {"there is no finalist"} and table["accuracy"].isna().all()
    assert choice_table(frame.iloc[:0]).empty


def test_a_setting_is_told_by_what_is_not_default(frame: pd.DataFrame) -> None:
    table = rows(seed_accuracy_table(frame, "candidates"), network="cnn")
    told = [setting_text(row) for _, row in table.iterrows()]
    assert told == [
        "batch 32, 10 epochs",
        "batch 32, 10 epochs, dropout 0.3",
        "batch 32, 10 epochs, class weights balanced, augmentation shift",
    ]


def test_standardised_images_are_a_setting_of_their_own(frame: pd.DataFrame) -> None:
    cell = seed_accuracy_table(frame, "candidates").iloc[0].to_dict()
    told = setting_text(cell | {"augmentation": "affine", "standardise": True})
    assert told == "batch 32, 10 epochs, augmentation affine, standardised" and "standardise" in SETTING


def test_distributed_training_is_compared_seed_by_seed(frame: pd.DataFrame) -> None:
    table = paired_table(frame)
    assert list(zip(table["network"], table["workers"], strict=True)) == [
        ("cnn", 2), ("cnn", 4), ("convlstm", 2), ("convlstm", 4)
    ]  # fmt: skip
    assert (table["points"] == 0).all() and table["within"].all() and (table["equal"] == 10).all()
    better = scaled(frame, "test_accuracy", 1.05, experiment="paired", workers=4, network="cnn")
    row = one(paired_table(better), network="cnn", workers=4)
    assert row["points"] == pytest.approx(4.2) and not row["within"] and row["equal"] == 0


def test_a_pair_without_its_sequential_half_says_so(frame: pd.DataFrame) -> None:
    table = paired_table(not_run(frame, "failed", "out of memory", experiment="paired", workers=1))
    assert table["points"].isna().all() and not table["within"].any()
    assert table["reason"].str.contains("no seed has test_accuracy of both").all()


def test_pooling_and_dropout_stand_against_the_plain_network(frame: pd.DataFrame) -> None:
    table = gain_table(frame)
    for _, own in table.groupby("network"):
        found = own.set_index(["pooling", "dropout"])["points"].dropna().to_dict()
        assert found == {
            ("max", 0.5): pytest.approx(2.0), ("average", 0.5): pytest.approx(2.0), ("average", 0.0): pytest.approx(0.0)
        }  # fmt: skip
    assert set(table["network"]) == {"cnn", "convlstm"}


def test_networks_are_compared_with_the_cnn(frame: pd.DataFrame) -> None:
    table = rows(gain_table(frame, "learning", network="cnn"), use_case="Pneumonia", way="model parallel")
    found = table.set_index("network")["points"]
    assert (
        found["convlstm"] == pytest.approx(2.0) and found["convlstm2d"] == pytest.approx(-1.0) and pd.isna(found["cnn"])
    )


def test_speed_stands_beside_sequential_training_of_the_same_network_and_framework(frame: pd.DataFrame) -> None:
    table = speed_table(frame)
    for network in SPEED:
        own = rows(table, network=network, framework="torch", variant="a", global_batch_size=32)
        found = own[(own["dropout"] == 0) & (own["weight_decay"] == 0)].set_index("strategy")
        assert found["speedup"].to_dict() == pytest.approx({"sequential": 1.0} | GAINS)
        assert found["difference"].to_dict() == dict.fromkeys(GAINS, True) | {"sequential": False}
        assert found.loc["sequential", "training_seconds"] == pytest.approx(10 * IMAGES / SPEED[network] * MIDDLE)
    big = one(table, network="cnn", framework="torch", strategy="allreduce", global_batch_size=128)
    assert big["speedup"] == pytest.approx(GAINS["allreduce"] * LARGE_GAIN) and big["way"] == "data parallel"
    ours = one(table, network="cnn", framework="tensorflow", strategy="allreduce", global_batch_size=32)
    assert ours["speedup"] == pytest.approx(GAINS["allreduce"]), "over TensorFlow's own sequential training"
    again = one(table, network="cnn", framework="torch", variant="b", global_batch_size=32)
    assert again["speedup"] == pytest.approx(NOISE) and not again["difference"]


def test_torch_stands_against_tensorflow(frame: pd.DataFrame) -> None:
    table = framework_table(frame)
    assert len(table) == 3 * 2 * 2 and table["ratio"].tolist() == pytest.approx([1 / TENSORFLOW] * 12)
    assert (table["tensorflow_seconds"] > table["torch_seconds"]).all() and table["difference"].all()
    missing = framework_table(not_run(frame, "skipped", NO_TENSORFLOW, framework="tensorflow"))
    assert set(missing["reason"]) == {NO_TENSORFLOW} and missing["ratio"].isna().all() and len(missing) == 12


def test_a_profile_stands_beside_the_step_of_its_own_sessions(frame: pd.DataFrame) -> None:
    """Steps of a slower processor made torch's twice as long as all that its profiler saw."""
    seconds = framework_operator_table(frame, operators())["step_seconds"]
    assert seconds.notna().all()
    slower = frame[frame["experiment"] == "speed"].assign(session=7)
    slower = slower.assign(round=slower["round"] + 1000, step_seconds=3 * slower["step_seconds"])
    more = pd.concat([frame, *[slower.assign(round=slower["round"] + 1000 * again) for again in range(3)]])
    assert framework_operator_table(more, operators())["step_seconds"].tolist() == seconds.tolist()
    torch = more[(more["framework"] == "torch") | (more["round"] < 1000)]
    assert framework_table(torch)["torch_seconds"].equals(framework_table(frame)["torch_seconds"])


def test_where_a_step_of_each_framework_goes(frame: pd.DataFrame) -> None:
    table = framework_operator_table(frame, operators())
    assert len(table) == 2 * len(OPERATORS) and set(table["rounds"]) == {10}
    ours = rows(table, framework="torch").set_index("operators")["seconds"]
    assert ours.to_dict() == pytest.approx({kind: 1.045 * seconds for kind, seconds in OPERATORS.items()})
    theirs = rows(table, framework="tensorflow").set_index("operators")["seconds"]
    assert theirs.tolist() == pytest.approx((2 * ours).tolist())
    missing = framework_operator_table(
        not_run(frame, "skipped", NO_TENSORFLOW, framework="tensorflow"), rows(operators(), framework="torch")
    )
    (row,) = rows(missing, framework="tensorflow").to_dict("records")
    assert (row["status"], row["reason"], row["operators"]) == ("skipped", NO_TENSORFLOW, "")
    assert set(table["step_seconds"]) == {table["step_seconds"].iloc[0], table["step_seconds"].iloc[-1]}
    step = select(frame, {"experiment": "speed", "network": "convlstm", "framework": "torch", "variant": "a"})
    step = select(step, {"strategy": "sequential", "global_batch_size": 128, "dropout": 0.0})["step_seconds"].median()
    assert rows(table, framework="torch")["step_seconds"].iloc[0] == pytest.approx(step)
    unknown = framework_operator_table(frame, None)
    assert unknown["seconds"].isna().all() and set(unknown["operators"]) == {""} and len(unknown) == 2
    assert framework_operator_table(frame[frame["experiment"] != "profile"], None).empty


def test_what_layers_and_penalties_cost(frame: pd.DataFrame) -> None:
    table = price_table(frame)
    assert (
        one(table, dropout=0.25)["ratio"] == pytest.approx(1.05)
        and one(table, dropout=0.25)["setting"] == "dropout 0.25"
    )
    assert one(table, weight_decay=1e-4)["ratio"] == pytest.approx(1.02)
    lstm = one(table, network="convlstm", framework="torch", global_batch_size=32)
    assert lstm["ratio"] == pytest.approx(SPEED["cnn"] / SPEED["convlstm"]) and lstm["setting"] == ""


def test_recall_says_which_class_pays(frame: pd.DataFrame) -> None:
    table = class_table(confusion(), "selected")
    own = rows(table, network="cnn").set_index("class")
    assert own.loc["pneumonia", "recall"] == pytest.approx(99) and own.loc["normal", "images"] == 200
    right = 0.84 + DROPOUT * 0.6
    assert own.loc["normal", "recall"] == pytest.approx(100 * (right * 600 - 396) / 200, abs=0.2)
    assert own["actual_share"].to_dict() == pytest.approx({"pneumonia": 200 / 3, "normal": 100 / 3})
    assert own.loc["pneumonia", "predicted_share"] > own.loc["pneumonia", "actual_share"]
    assert set(class_table(confusion(), "candidates")["split"]) == {"validation"}
    assert class_table(None, "selected").empty


def test_the_confusion_matrix_is_a_mean_over_seeds() -> None:
    table = rows(matrix_table(confusion(), "selected"), network="cnn")
    assert table.groupby("actual")["share"].sum().to_dict() == pytest.approx({"pneumonia": 100, "normal": 100})
    assert table["images"].sum() == pytest.approx(600)
    assert one(table, actual="pneumonia", predicted="pneumonia")["images"] == 396


def test_what_did_not_run_stays_a_row(frame: pd.DataFrame) -> None:
    failed = not_run(frame, "failed", "out of memory", experiment="learning", network="convlstm")
    table = rows(seed_accuracy_table(failed, "learning"), network="convlstm")
    assert set(table["status"]) == {"failed"} and table["accuracy"].isna().all() and (table["seeds"] == 0).all()


def test_a_seed_that_diverged_leaves_no_mean_of_the_others(frame: pd.DataFrame) -> None:
    """Means, choices and differences were those of the seeds that went well."""
    for experiment in ("candidates", "ablation", "paired"):
        frame = not_run(frame, "failed", DIVERGED, round=0, network="cnn", experiment=experiment)
    row = rows(seed_accuracy_table(frame, "candidates"), network="cnn").iloc[1]
    assert row[["accuracy", "validation", "balanced", "auc", "train", "gap", "run_low"]].isna().all()
    assert (row["status"], row["seeds"], row["reason"]) == ("ok", 9, f"1 of 10 rounds failed: {DIVERGED}")
    assert choice_table(frame).set_index("network").loc["cnn", "consistent"] == "no candidate was measured"
    gains = gain_table(frame)
    assert gains.loc[gains["network"] == "cnn", "points"].isna().all()
    assert gains.loc[gains["network"] == "convlstm", "points"].notna().sum() == 3, "whose seeds all went well"
    pair = one(paired_table(frame), network="cnn", workers=4)
    assert pd.isna(pair["points"]) and not pair["within"] and DIVERGED in pair["reason"]
    assert one(paired_table(frame), network="convlstm", workers=4)["seeds"] == 10


def test_a_seed_of_the_sequential_half_that_diverged_is_told(frame: pd.DataFrame) -> None:
    table = paired_table(not_run(frame, "failed", DIVERGED, experiment="paired", workers=1, round=2))
    assert set(table["reason"]) == {"1 of 10 seeds diverged: there is no mean difference over all of them"}


def test_ways_are_told_apart_by_what_they_train() -> None:
    made = {
        name: trained(name, "learning", use_case="Pneumonia", epochs=1) for name in ("processes", "gpipe", "allreduce")
    }
    made |= {name: trained(name, "learning", use_case="Pneumonia", epochs=1) for name in ("algorithm_1", "epochwise")}
    found = {name: way(vars(job)) for name, job in made.items()}
    assert found == {
        "processes": "data parallel", "gpipe": "model parallel", "allreduce": "data parallel",
        "algorithm_1": "weights averaged", "epochwise": "weights averaged",
    }  # fmt: skip
    assert {name for name, job in made.items() if not job.synchronous or job.averages_parameters} == {
        "algorithm_1", "epochwise"
    }  # fmt: skip


def test_what_is_covered_is_counted(frame: pd.DataFrame) -> None:
    table = coverage_table(not_run(frame, "skipped", NO_TENSORFLOW, framework="tensorflow"))
    row = one(table, experiment="learning", use_case="Pneumonia", network="cnn", framework="torch")
    assert (row["cells"], row["rounds"], row["rows"], row["ok"]) == (5, 10, 50, 50)
    some = frame[(frame["global_batch_size"] == 32) | (frame["round"] < 2)]
    few = one(coverage_table(some), experiment="learning", use_case="Pneumonia", network="cnn", framework="torch")
    assert few["cells"] == 5 and few["rows"] < 50, "seen: one, for a cell had fewer seeds than another"
    assert one(table, experiment="speed", network="cnn", framework="tensorflow")["ok"] == 0


def test_the_quoted_run_has_wilsons_interval(frame: pd.DataFrame) -> None:
    row = choice_table(frame, confusion()).set_index("network").loc["cnn"]
    assert row["run_low"] < row["accuracy"] < row["run_high"]


def test_the_plain_settings_stand_beside_the_quoted_ones(frame: pd.DataFrame) -> None:
    table = beside_plain(frame)
    for network in ("cnn", "convlstm"):
        plain = one(table, use_case="Pneumonia", network=network, what="plain")
        quoted = one(table, use_case="Pneumonia", network=network, what="chosen")
        assert plain["setting"] == "batch 32, 10 epochs" and plain["accuracy"] == pytest.approx(100 * ACCURACY[network])
        assert quoted["points"] == pytest.approx(60 * DROPOUT) and pd.isna(plain["points"])
    alone = beside_plain(without(frame, experiment="learning"))
    assert set(alone["what"]) == {"chosen"} and alone["points"].isna().all()
    assert beside_plain(frame.iloc[:0]).empty


def test_both_pairs_widen_what_counts_as_a_difference(frame: pd.DataFrame) -> None:
    """One pair of one worker at the smallest batch, one of two workers at the largest: each is held against its own."""
    table = rows(speed_table(frame), network="cnn", framework="torch", variant="b")
    assert table[["strategy", "global_batch_size"]].to_numpy().tolist() == [["sequential", 32], ["processes", 128]]
    assert table["speedup"].tolist() == pytest.approx([NOISE, NOISE])
    noisy = scaled(frame, "images_per_second", 3.0, experiment="speed", variant="b", global_batch_size=128)
    found = rows(speed_table(noisy), network="cnn", framework="torch", strategy="processes", variant="a")
    assert (
        not found["difference"].any()
        and rows(speed_table(frame), strategy="processes", variant="a")["difference"].all()
    )


def test_the_lstm_is_compared_with_the_cnn_seed_by_seed(frame: pd.DataFrame) -> None:
    table = lstm_table(frame)
    plain = one(table, use_case="Pneumonia", experiment="learning", way="data parallel", framework="torch",
                setting="batch 32, 10 epochs")  # fmt: skip
    assert plain["points"] == pytest.approx(2) and plain["seeds"] == 10
    assert set(table["experiment"]) == {"learning", "paired", "selected"}
    assert lstm_table(frame[frame["network"] != "cnn"]).empty
