"""What a target says: a ratio paired per round, reached or not, and why there is none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd
import pytest

from fake_records import records as fake_records
from lockstep.analysis.confidence import MIN_ROUNDS, Estimate
from lockstep.analysis.stored import Stored, no_records
from lockstep.analysis.targets import AT_LEAST, AT_MOST, TOO_FEW, WITHIN, Reading, Target, target_table
from lockstep.analysis.verdicts import NEEDS_HARDWARE, NOT_YET, UNDECIDED
from lockstep.engine.job import Job
from lockstep.experiments.e01_single_node_baselines.targets import TARGETS as SINGLE
from lockstep.experiments.e02_threads_vs_processes.targets import TARGETS as LOCAL
from lockstep.experiments.experiment import Experiment
from lockstep.experiments.registry import every
from lockstep.experiments.report import targets_table
from lockstep.records import COLUMNS, Row, make_row

ROUNDS = 5
PROCESSES = "processes over the sequential baseline"
FLOAT = "shared memory over DDP, float32"
BFLOAT = "shared memory over DDP, bfloat16"
GLOO = "reduce + update: gloo's seconds over shared memory's"
FREE_CORE = "JPEG over tensors in memory, a core free for decoding"
BUSY = "JPEG over 1 / (compute + decode), all cores busy"


def rows(
    strategy: str,
    images_per_second: float = 0.0,
    *,
    why: str = "",
    status: str = "ok",
    rounds: int = ROUNDS,
    **fields: Any,
) -> list[Row]:
    """A row per round; each round is a little faster for everybody, so unpaired ratios would spread."""
    measured = fields.pop("measured", {})
    found = []
    for number in range(rounds):
        job = Job.of(strategy, **({"experiment": "table1", "workers": 2, "round": number} | fields))
        values = {}
        if status == "ok":
            speed = (1 + 0.1 * number) * (images_per_second or 1.0)
            values = {"images_per_second": speed, "step_seconds": job.global_batch_size / speed} | measured
        found.append(make_row(job, values, status=status, reason=why))
    return found


def table(*parts: list[Row], targets: Sequence[Target] = LOCAL) -> dict[str, Any]:
    frame = pd.DataFrame([row for part in parts for row in part], columns=list(COLUMNS))
    numbers = [name for name, column in COLUMNS.items() if column.kind == "number"]
    frame[numbers] = frame[numbers].astype(float)
    found = target_table(targets, Stored(frame))
    return {row["target"]: row for _, row in found.iterrows()}


def test_every_target_of_notebook_02_is_there() -> None:
    thresholds = {target.name: target.threshold for target in LOCAL}
    assert list(thresholds.values()) == [1.85, 1.6, 1.85, 1.1, 1.18, 4.0, 0.95, 0.95]
    found = table(rows("sequential", 10.0))
    assert {name: row["threshold"] for name, row in found.items()} == thresholds
    assert {row["aim"] for row in found.values()} == {"≥"}


def test_a_ratio_is_paired_per_round() -> None:
    row = table(rows("sequential", 10.0), rows("processes", 19.0))[PROCESSES]
    assert row["ratio"] == pytest.approx(1.9)
    assert (row["low"], row["high"]) == (pytest.approx(1.9), pytest.approx(1.9)), "every round's own ratio is the same"
    assert (row["rounds"], row["reached"], row["reason"]) == (ROUNDS, "yes", "")


@pytest.mark.parametrize(("speed", "reached"), [(18.5, "yes"), (18.4, "no")])
def test_the_threshold_itself_is_reached(speed: float, reached: str) -> None:
    assert table(rows("sequential", 10.0), rows("processes", speed))[PROCESSES]["reached"] == reached


def test_precisions_are_not_mixed() -> None:
    found = table(
        rows("processes", 11.5), rows("ddp", 10.0),
        rows("processes", 23.0, precision="bfloat16"), rows("ddp", 20.0, precision="bfloat16"),
    )  # fmt: skip
    assert (found[FLOAT]["ratio"], found[FLOAT]["reached"]) == (pytest.approx(1.15), "yes")
    assert (found[BFLOAT]["ratio"], found[BFLOAT]["reached"]) == (pytest.approx(1.15), "no")


def test_a_skipped_cell_says_why_instead_of_a_number() -> None:
    units = "no bfloat16 units"
    found = table(
        rows("processes", precision="bfloat16", status="skipped", why=units),
        rows("ddp", precision="bfloat16", status="skipped", why=units),
    )
    row = found[BFLOAT]
    assert (row["reached"], row["reason"], row["rounds"]) == ("needs hardware", units, 0)
    assert row[["ratio", "low", "high"]].isna().all()


def test_the_reason_is_that_of_the_half_that_is_missing() -> None:
    """Not a remark on the half that ran."""
    found = table(
        rows("processes", 10.0, why="contended"),
        rows("ddp", status="skipped", why="no gloo here"),
        rows("sequential", status="failed", why="rank 0 raised ValueError: bad"),
    )
    assert (found[FLOAT]["reached"], found[FLOAT]["reason"]) == (NEEDS_HARDWARE, "no gloo here")
    failed = (found[PROCESSES]["reached"], found[PROCESSES]["reason"])
    assert failed == (NOT_YET, "rank 0 raised ValueError: bad"), "another run may well measure it"


def test_a_remark_on_the_half_that_ran_now_and_then_explains_nothing() -> None:
    """Its failed round is not why there is no ratio."""
    ran = [*rows("processes", 10.0, rounds=4), *rows("processes", status="failed", why="bad")[4:]]
    row = table(ran, rows("ddp", status="skipped", why="no gloo here"))[FLOAT]
    assert (row["reached"], row["reason"]) == (NEEDS_HARDWARE, "no gloo here")
    assert table(ran)[FLOAT]["reason"] == "not in these records"


def test_halves_that_never_met_are_not_called_missing() -> None:
    row = table(rows("processes", 10.0)[:2], rows("ddp", 10.0)[2:])[FLOAT]
    assert row["reached"] == NOT_YET and "no round holds images_per_second of both" in row["reason"]


@pytest.mark.parametrize(("rounds", "reached"), [(1, TOO_FEW), (MIN_ROUNDS - 1, TOO_FEW), (MIN_ROUNDS, "yes")])
def test_a_target_needs_its_rounds(rounds: int, reached: str) -> None:
    row = table(rows("sequential", 10.0, rounds=rounds), rows("processes", 19.0))[PROCESSES]
    assert (row["reached"], row["rounds"], row["ratio"]) == (reached, rounds, pytest.approx(1.9))
    assert row["reason"] == ("" if reached == "yes" else f"{rounds} of at least {MIN_ROUNDS}")


def test_skipped_input_is_not_measurable() -> None:
    shared: dict[str, Any] = {"experiment": "input", "status": "skipped", "why": "no photos"}
    row = table(rows("sequential", input="jpeg", **shared), rows("sequential", input="memory", **shared))[BUSY]
    assert (row["reached"], row["reason"]) == (NEEDS_HARDWARE, "no photos")


def test_what_was_not_measured_says_so() -> None:
    for name, row in table(rows("sequential", 10.0, why="contended")).items():
        assert (row["reached"], row["reason"]) == (NOT_YET, "not in these records"), name


def test_reduce_and_update_are_seconds() -> None:
    def exchange(strategy: str, seconds: float) -> list[Row]:
        measured = {"step_seconds": seconds, "exchange_seconds": seconds / 2, "update_seconds": seconds / 3}
        return rows(strategy, experiment="exchange", input="none", measured=measured)

    row = table(exchange("processes", 0.06), exchange("processes_allreduce", 0.27))[GLOO]
    assert row["ratio"] == pytest.approx(0.27 / 0.06)
    assert row["reached"] == "yes"


def test_input_with_a_free_core_and_without() -> None:
    """All cores busy: a step of 1.0 s in memory and 0.1 s of decoding are at best 1.1 s; with JPEG it took 1.25 s."""
    shared = {"experiment": "input", "global_batch_size": 32}
    found = table(
        rows("sequential", 32 / 1.25, input="jpeg", measured={"step_seconds": 1.25, "decode_seconds": 0.1}, **shared),
        rows("sequential", 32.0, input="memory", measured={"step_seconds": 1.0, "decode_seconds": 0.0}, **shared),
        rows("sequential", 31.0, input="jpeg", cores_per_worker=2, **shared),
        rows("sequential", 32.0, input="memory", cores_per_worker=2, **shared),
    )
    assert found[FREE_CORE]["ratio"] == pytest.approx(31 / 32)
    assert found[FREE_CORE]["reached"] == "yes"
    assert found[BUSY]["ratio"] == pytest.approx(1.1 / 1.25)
    assert found[BUSY]["reached"] == "no"


WITH_TARGETS = [found for found in every() if found.targets]


@pytest.mark.parametrize("own", WITH_TARGETS, ids=lambda own: own.name)
def test_targets_without_records_are_not_measured_yet(own: Experiment) -> None:
    table = targets_table(own.targets, no_records())
    assert len(table) == len(own.targets)
    assert set(table["reached"]) == {NOT_YET} and set(table["measured"]) == {""}


def test_targets_of_too_few_rounds_are_neither_reached_nor_missed() -> None:
    table = targets_table(LOCAL, Stored(fake_records(rounds=1)))
    words = table.loc[table["measured"] != "", "reached"]
    assert len(words) and set(words) == {"too few rounds: 1 of at least 5"}


@pytest.mark.parametrize(
    ("aim", "threshold", "inside", "outside"),
    [
        (AT_LEAST, 2.0, (2.0, 3.0), (1.99,)),
        (AT_MOST, 2.0, (2.0, 0.5), (2.01,)),
        (WITHIN, 0.1, (0.9, 1.1), (0.89, 1.11)),
    ],
)
def test_an_aim_has_its_side(aim: str, threshold: float, inside: tuple[float, ...], outside: tuple[float, ...]) -> None:
    target = Target("x", threshold, lambda stored: Reading(), aim)
    assert {target.reached(Estimate(value, value, value, 8)) for value in inside} == {"yes"}
    assert {target.reached(Estimate(value, value, value, 8)) for value in outside} == {"no"}
    assert target.reached(Estimate(inside[0], 0.5 * inside[0], 2 * inside[0], 8)) == UNDECIDED


def test_a_ratio_whose_interval_says_nothing_is_written_without_it() -> None:
    """It once stood there as 1.29 [0.044, 1.27e+13]; the answer goes by the interval all the same."""
    found, some = [Estimate(1.29, 0.044, 1.27e13, 9), Estimate(1.29, 0.13, 12.9, 9)], Stored(fake_records(rounds=1))
    targets = [Target("x", 1.1, lambda stored, one=one: Reading(one), AT_MOST) for one in found]
    table = targets_table(targets, some)
    assert table["measured"].tolist() == ["1.29 (no useful interval yet)", "1.29 [0.13, 12.9]"]
    assert set(table["reached"]) == {UNDECIDED}


# --- one node ---

BEST_SMALL = "ComplexSmall: best setting over the sequential baseline, in bfloat16"
BEST_BIG = "SimpleBig: best setting over the sequential baseline"
PEAK = "VGG16's convolutions over the measured float32 matrix peak"
DECODED = "photos decoded per second and core"


def rung(name: str, speed: float, use_case: str = "SimpleBig", **fields: Any) -> list[Row]:
    made = rows("sequential", speed, experiment="ladder", use_case=use_case, **fields)
    return [row | {"strategy": name} for row in made]


def test_every_target_of_notebook_01_is_there() -> None:
    assert [target.threshold for target in SINGLE] == [5.0, 4.0, 0.45, 0.45, 350.0]


def test_the_best_setting_is_the_fastest_that_ran() -> None:
    found = table(
        rung("sequential", 10.0), rung("fused", 43.0), rung("channels_last", 39.0),
        rung("bfloat16", 0.0, precision="bfloat16", status="skipped", why="no units"),
        targets=SINGLE,
    )  # fmt: skip
    assert (found[BEST_BIG]["ratio"], found[BEST_BIG]["reached"]) == (pytest.approx(4.3), "yes")


def test_the_best_setting_pays_for_being_chosen() -> None:
    """4.3 times by rounds that swing: enough for 4 if it had been the only one, and not as the best of eight."""
    swing = [0.94, 1.06] * 6
    base = [row | {"images_per_second": 10.0} for row in rung("sequential", 1.0, rounds=12)]
    ways = [
        [row | {"images_per_second": 43.0 * swing[place]} for place, row in enumerate(rung(name, 1.0, rounds=12))]
        for name in "abcdefgh"
    ]
    alone, among = (table(base, *found, targets=SINGLE)[BEST_BIG] for found in (ways[:1], ways))
    assert alone["reached"] == "yes" and among["reached"] == UNDECIDED and alone["ratio"] == among["ratio"]
    assert among["reason"].startswith("the fastest of 8: ")


def test_a_target_for_bfloat16_is_not_reached_by_float32() -> None:
    why = "no bfloat16 units"
    found = table(
        rung("sequential", 1.0, "ComplexSmall"), rung("fused", 9.0, "ComplexSmall"),
        rung("bfloat16", 0.0, "ComplexSmall", precision="bfloat16", status="skipped", why=why),
        targets=SINGLE,
    )  # fmt: skip
    assert (found[BEST_SMALL]["reached"], found[BEST_SMALL]["reason"]) == ("needs hardware", why)


def test_convolutions_are_compared_with_the_peak_of_the_same_precision() -> None:
    def flops(strategy: str, value: float, **fields: Any) -> list[Row]:
        made = rows("sequential", 1.0, measured={"flops_per_second": value}, use_case="ComplexSmall", **fields)
        return [row | {"strategy": strategy} for row in made]

    found = table(
        flops("channels_last", 150e9, experiment="profile"),
        flops("roof", 200e9, experiment="machine"),
        flops("roof", 900e9, experiment="machine", precision="bfloat16"),
        flops("roof_1_core", 110e9, experiment="machine"),
        targets=SINGLE,
    )
    assert (found[PEAK]["ratio"], found[PEAK]["reached"]) == (pytest.approx(0.75), "yes")


def test_an_absolute_target_has_no_denominator() -> None:
    decoded = [row | {"strategy": "decode"} for row in rows("sequential", 300.0, experiment="decode")]
    row = table(decoded, targets=SINGLE)[DECODED]
    mean = math.prod((1.0, 1.1, 1.2, 1.3, 1.4)) ** (1 / ROUNDS)
    assert row["ratio"] == pytest.approx(300 * mean), "the geometric mean of rounds that are 0, 10, ... 40 % faster"
    assert (row["rounds"], row["reached"]) == (ROUNDS, UNDECIDED), "five such rounds say little"
