"""Spaces: what they hold, what is refused before anything starts, and how their points become jobs."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import optuna
import pytest

from lockstep.engine.job import Job, JobError
from lockstep.tuning.space import NAMES, Space, SpaceError
from lockstep.tuning.space_entries import KINDS

RATE = {"kind": "float", "range": [1e-4, 1e-2], "log": True}
NETWORK = {"kind": "choice", "choices": ["cnn", "convlstm"]}
UNITS = {"kind": "int", "range": [32, 256], "log": True, "condition": {"network": ["convlstm"]}}
DECAY = {"kind": "float", "range": [1e-6, 1e-3], "log": True, "or": 0.0}
BATCH = {"kind": "choice", "choices": [16, 32]}
SMALL = {"lstm_units": UNITS, "network": NETWORK, "learning_rate": RATE, "weight_decay": DECAY}


def base(**fields: Any) -> Job:
    return Job.of("sequential", use_case="Pneumonia", epochs=4, scored_on="validation", **fields)


def notebook(root: Path) -> Space:
    return Space.read(root / "notebooks" / "spaces" / "convlstm.yaml")


# --- the notebook's space ---


def test_the_notebooks_space_is_valid(root: Path) -> None:
    space = notebook(root)
    assert set(space.names) == set(NAMES) - {"pooling", "class_weights"}
    assert space.names.index("network") < space.names.index("lstm_units")
    space.check(base())
    assert not space.is_one_point


def test_every_random_setting_of_the_notebook_is_a_job(root: Path) -> None:
    space = notebook(root)
    jobs = [space.job(base(), space.draw(1, number)) for number in range(100)]
    assert len(set(jobs)) == 100
    assert {job.network for job in jobs} == {"cnn", "convlstm"}
    assert all((job.lstm_units > 0) == (job.network == "convlstm") for job in jobs)
    assert 30 < sum(job.weight_decay == 0 for job in jobs) < 70, "half of them have none"


def test_every_entry_of_the_notebook_says_why(root: Path) -> None:
    """A comment stands above each entry, or above the one before it where they share it."""
    lines = (root / "notebooks" / "spaces" / "convlstm.yaml").read_text(encoding="utf-8").splitlines()
    entries = [number for number, line in enumerate(lines) if line and not line.startswith("#")]
    assert len(entries) == 13
    assert all(lines[number - 1].startswith("#") or number - 1 in entries for number in entries)


# --- settings ---


def test_a_setting_is_a_function_of_seed_and_number() -> None:
    space, other_order = Space.of(SMALL), Space.of(dict(reversed(SMALL.items())))
    for number in range(20):
        assert space.draw(3, number) == space.draw(3, number) == other_order.draw(3, number)
    assert space.draw(3, 0) != space.draw(4, 0) != space.draw(4, 1)


def test_settings_are_spread_over_the_space() -> None:
    space = Space.of(SMALL)
    drawn = [space.draw(0, number) for number in range(400)]
    networks = Counter(setting["network"] for setting in drawn)
    assert 160 < networks["cnn"] < 240
    assert all(("lstm_units" in setting) == (setting["network"] == "convlstm") for setting in drawn)
    rates = [setting["learning_rate"] for setting in drawn]
    assert all(1e-4 <= rate <= 1e-2 and rate == float(f"{rate:.6g}") for rate in rates)
    assert 150 < sum(rate < 1e-3 for rate in rates) < 250, "uniform in the logarithm"
    units = [setting["lstm_units"] for setting in drawn if "lstm_units" in setting]
    assert all(type(number) is int and 32 <= number <= 256 for number in units)
    assert 0.35 < sum(number < 91 for number in units) / len(units) < 0.65


def test_both_ends_of_whole_numbers_are_as_likely_as_the_others() -> None:
    space = Space.of({"rate_warmup_epochs": {"kind": "int", "range": [0, 3]}})
    counts = Counter(space.draw(0, number)["rate_warmup_epochs"] for number in range(800))
    assert set(counts) == {0, 1, 2, 3} and all(150 < count < 250 for count in counts.values())


def test_numbers_below_zero_are_refused() -> None:
    with pytest.raises(JobError, match="number=-1 is not possible"):
        Space.of(SMALL).draw(0, -1)


def test_optuna_is_asked_for_what_the_condition_allows() -> None:
    space = Space.of(SMALL)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    found = []
    for _ in range(40):
        trial = study.ask()
        setting = space.suggest(trial)
        study.tell(trial, 0.0)
        found.append(setting)
        assert ("lstm_units" in trial.params) == ("lstm_units" in setting) == (setting["network"] == "convlstm")
        assert ("weight_decay" in trial.params) == (setting["weight_decay"] > 0)
        space.job(base(), setting)
    assert {setting["network"] for setting in found} == {"cnn", "convlstm"}


def test_optuna_suggests_a_setting_that_was_enqueued() -> None:
    space = Space.of(SMALL)
    study = optuna.create_study()
    for number in range(12):
        setting = space.draw(0, number)
        study.enqueue_trial(space.parameters(setting))
        assert space.suggest(study.ask()) == setting


# --- jobs ---


def test_a_setting_becomes_a_job() -> None:
    space = Space.of(SMALL | {"global_batch_size": BATCH})
    setting = {"network": "convlstm", "lstm_units": 64, "learning_rate": 0.002, "global_batch_size": 16}
    job = space.job(base(seed=7), setting)
    assert all(getattr(job, name) == value for name, value in setting.items())
    assert job == base(seed=7).with_(**setting, per_worker_batch_size=16)
    shared = space.job(base().with_(workers=2, strategy="processes", launcher="processes", sync="allreduce"), setting)
    assert (shared.global_batch_size, shared.per_worker_batch_size) == (16, 8)


def test_what_the_setting_does_not_name_stays_the_bases() -> None:
    job = Space.of({"learning_rate": RATE}).job(base(dropout=0.3, network="convlstm"), {"learning_rate": 0.01})
    assert (job.dropout, job.network) == (0.3, "convlstm")


def test_batch_norm_needs_one_worker() -> None:
    space = Space.of({"batch_norm": {"kind": "choice", "choices": [False, True]}})
    space.check(base())
    two = base().with_(workers=2, strategy="processes", launcher="processes", sync="allreduce")
    with pytest.raises(SpaceError, match=r"batch_norm=True with workers=2: each would normalize .* by one worker"):
        space.check(two)


def test_a_setting_with_another_name_is_refused() -> None:
    with pytest.raises(SpaceError, match="the space has no 'learning_rat'; nearest: learning_rate; there are: "):
        Space.of(SMALL).job(base(), {"learning_rat": 0.1})


def test_one_point_is_allowed_and_says_so() -> None:
    rate = {"kind": "float", "range": [0.01, 0.01]}
    space = Space.of({"learning_rate": rate, "network": {**NETWORK, "choices": ["cnn"]}})
    space.check(base())
    assert space.is_one_point and space.describe().endswith("only one setting: it runs once")
    assert space.draw(0, 0) == space.draw(5, 9) == {"learning_rate": 0.01, "network": "cnn"}
    assert not Space.of(SMALL).is_one_point


def test_a_readers_own_names() -> None:
    space = Space.of({"width": {"kind": "int", "range": [4, 64]}, "act": {"kind": "choice", "choices": ["relu"]}}, None)
    setting = space.draw(0, 0)
    assert 4 <= setting["width"] <= 64 and setting["act"] == "relu"


# --- files ---


def test_a_file_in_json_is_the_same_space_as_in_yaml(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(SMALL))
    text = "".join(f"{name}: {json.dumps(each)}\n" for name, each in reversed(SMALL.items()))
    (tmp_path / "a.yaml").write_text("# in another order, and with a comment\n" + text.replace("0.0001", "1e-4"))
    spaces = Space.read(tmp_path / "a.json"), Space.read(tmp_path / "a.yaml"), Space.of(SMALL)
    assert len({space.fingerprint for space in spaces}) == 1
    again = Space.of(json.loads(json.dumps(spaces[0].content)))
    assert again.fingerprint == spaces[0].fingerprint and again.draw(2, 3) == spaces[1].draw(2, 3)
    changed = Space.of(SMALL | {"learning_rate": {**RATE, "range": [1e-4, 2e-2]}})
    assert changed.fingerprint != spaces[0].fingerprint


def test_a_space_in_words() -> None:
    assert Space.of(SMALL).describe().splitlines() == [
        "network: cnn | convlstm",
        "learning_rate: 0.0001 to 0.01, log",
        "weight_decay: 1e-06 to 0.001, log, or 0.0",
        "lstm_units: 32 to 256, whole, log; only with network = convlstm",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"a\.yaml can't be read \(No such file or directory\); give the file of a space"),
        ("", r"a\.yaml: None is no space; write a mapping"),
        ("{}", r"a\.yaml: \{\} is no space"),
        ("- network", r"a\.yaml: \['network'\] is no space"),
        ("network: {kind: ", r"a\.yaml is no YAML or JSON: "),
        ("dropout: {kind: float, range: [0, 1]}\ndropout: {}", r"'dropout' stands there twice, .*line 1"),
        ("\xff", r"a\.yaml is no YAML or JSON"),
    ],
)
def test_files_that_are_refused(text: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    if text is not None:
        path.write_bytes(text.encode("latin-1"))
    with pytest.raises(SpaceError, match=message):
        Space.read(path)


RATE_OF = "the space, learning_rate: "


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"learnin_rate": RATE}, "'learnin_rate' can't be varied; nearest: learning_rate.*; there are: network"),
        ({"epochs": {"kind": "int", "range": [1, 9]}}, "'epochs' can't be varied; there are: "),
        ({3: RATE}, "3 can't be varied"),
        ({"learning_rate": 0.1}, RATE_OF + "0.1 says no values; write kind, and range or choices"),
        ({"learning_rate": {"range": [0, 1]}}, RATE_OF + f"kind=None does not exist; there are: {', '.join(KINDS)}"),
        ({"learning_rate": {**RATE, "kind": "real"}}, RATE_OF + "kind='real' does not exist"),
        ({"learning_rate": {**RATE, "rnge": [0, 1]}}, RATE_OF + "'rnge' does not exist; nearest: range"),
        ({"learning_rate": {"kind": "float"}}, RATE_OF + "kind float needs range; add it"),
        ({"network": {"kind": "choice"}}, "kind choice needs choices"),
        ({"network": {**NETWORK, "log": True}}, "'log' does nothing with kind choice; leave it out"),
        ({"learning_rate": {**RATE, "choices": [1]}}, "'choices' does nothing with kind float"),
        ({"learning_rate": {**RATE, "range": []}}, RATE_OF + r"range=\[\] is none; write \[least, most\]"),
        ({"learning_rate": {**RATE, "range": [0.1]}}, r"range=\[0.1\] is none"),
        ({"learning_rate": {**RATE, "range": "0.1"}}, r"range='0.1' is none"),
        ({"learning_rate": {**RATE, "range": [0.1, 0.01]}}, r"it begins above its end; write \[0.01, 0.1\]"),
        ({"learning_rate": {**RATE, "range": [0.1, "b"]}}, "'b' in range is no number"),
        ({"learning_rate": {**RATE, "range": [0.1, math.inf]}}, "inf in range is no number"),
        ({"convolutions": {"kind": "int", "range": [1, 2.5]}}, "2.5 in range is no whole number"),
        ({"learning_rate": {**RATE, "range": [0, 0.1]}}, "range from 0 with log: .* begin above 0, and write `or: 0`"),
        ({"learning_rate": {**RATE, "range": [-1, 0.1]}}, "range from -1 with log"),
        ({"learning_rate": {**RATE, "log": "yes"}}, "log='yes' is neither true nor false"),
        ({"network": {"kind": "choice", "choices": []}}, "network: choices is empty; name one value at least"),
        ({"network": {"kind": "choice", "choices": "cnn"}}, r"choices='cnn' is no list; write \[cnn\]"),
        ({"network": {"kind": "choice", "choices": ["cnn", None]}}, "None is no text, number, true or false"),
        ({"network": {"kind": "choice", "choices": ["cnn", "cnn"]}}, "'cnn' stands there twice; give it once"),
        ({"lstm_units": UNITS}, "lstm_units: condition on 'network', which is not in the space; add it"),
        (
            {"network": NETWORK, "lstm_units": {**UNITS, "condition": {"netwrk": ["cnn"]}}},
            "condition on 'netwrk', which is not in the space; nearest: network",
        ),
        (
            {"network": NETWORK, "lstm_units": {**UNITS, "condition": {"network": ["rnn"]}}},
            "condition on network='rnn', which it never is; its choices are 'cnn', 'convlstm'",
        ),
        (
            {"learning_rate": RATE, "lstm_units": {**UNITS, "condition": {"learning_rate": [0.1]}}},
            "condition on 'learning_rate', which is a range; conditions are on choices",
        ),
        ({"network": {**NETWORK, "condition": 3}}, "condition=3 is none; write {name: "),
        (
            {
                "network": {**NETWORK, "condition": {"pooling": ["max"]}},
                "pooling": {"kind": "choice", "choices": ["max"], "condition": {"network": ["cnn"]}},
            },
            "conditions in a circle: (network needs pooling needs network|pooling needs network needs pooling); leave",
        ),
    ],
)
def test_spaces_that_are_refused(content: dict[Any, Any], message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        Space.of(content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"network": {"kind": "choice", "choices": ["cnn", "rnn"]}}, "network='rnn': network='rnn' does not exist"),
        ({"dropout": {"kind": "float", "range": [0, 1]}}, r"dropout=1.0: dropout=1.0 is not possible.*the space"),
        ({"global_batch_size": {"kind": "float", "range": [1, 8]}}, "give a whole number of at least 1"),
        ({"global_batch_size": {"kind": "choice", "choices": ["all"]}}, "global_batch_size='all' is not possible"),
        ({"augmentation": {"kind": "choice", "choices": ["shift", "mixup"]}}, "augmentation='mixup' does not exist"),
        ({"convolutions": {"kind": "int", "range": [1, 4]}}, "convolutions=4 is not possible"),
        ({"lstm_units": {"kind": "int", "range": [8, 16]}}, "lstm_units=8 with kind='cnn', which has no such layer"),
        (
            {"network": NETWORK, "convolutions": {"kind": "int", "range": [1, 3]}},
            "network='convlstm' with convolutions=1: kind='convlstm' with convolutions=1: an LSTM over the 529",
        ),
        ({"rate_warmup_epochs": {"kind": "int", "range": [0, 5]}}, "rate_warmup_epochs=5 with epochs=4"),
    ],
)
def test_values_that_no_job_takes_are_found_beforehand(content: dict[str, Any], message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        Space.of(content).check(base())


def test_ends_that_exclude_each_other_are_no_corner() -> None:
    """Units of an LSTM with a CNN would be refused, and no setting of the space has them."""
    Space.of(SMALL).check(base())
