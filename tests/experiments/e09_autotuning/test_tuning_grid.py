"""Notebook 09's grid grows by what was found, and opens no test image of a tuned network before one is chosen."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import fake_tuning
from fake_tuning import PARAMETERS
from lockstep.analysis.stored import Stored
from lockstep.engine.training.loop import Site
from lockstep.engine.training.scores import DIVERGED
from lockstep.experiments.e09_autotuning import grid, timing
from lockstep.experiments.e09_autotuning.choice import best_of_finalists, finalists_of_pool
from lockstep.experiments.e09_autotuning.grid import CHOSEN, ENGINES, FINALISTS, POOL, RUNG, cells, planned
from lockstep.experiments.e09_autotuning.measuring import alone
from lockstep.experiments.e09_autotuning.stored_pool import StoredPool, pool_in
from lockstep.experiments.experiment import Parameters
from lockstep.tuning.plan import StudyPlan


def found(stored: Stored) -> StoredPool:
    pool = pool_in(stored)
    assert pool is not None
    return pool


@pytest.fixture
def growing(monkeypatch: pytest.MonkeyPatch) -> dict[str, Stored]:
    """What the run folder holds."""
    holds: dict[str, Stored] = {}

    def pool_of(folder: Path) -> tuple[Stored, StoredPool] | None:
        assert folder.name == "09_autotuning"
        return (holds["now"], found(holds["now"])) if "now" in holds else None

    monkeypatch.setattr(grid, "pool_of", pool_of)
    return holds


def experiments() -> list[str]:
    return list(dict.fromkeys(job.experiment for job in cells(PARAMETERS)))


def test_each_phase_waits_for_the_one_before(growing: dict[str, Stored]) -> None:
    assert experiments() == [POOL, ENGINES, RUNG]
    whole = fake_tuning.stored()
    growing["now"] = Stored(whole.records, fake_tuning.pool_tables(settings=12))
    assert experiments() == [POOL, ENGINES, RUNG], "12 of 16 settings"
    without = whole.records[~whole.records["experiment"].isin([FINALISTS, CHOSEN])]
    growing["now"] = Stored(without, whole.tables)
    assert experiments() == [POOL, ENGINES, RUNG, FINALISTS]
    growing["now"] = Stored(whole.records[whole.records["seed"] < 4], whole.tables)
    assert experiments() == [POOL, ENGINES, RUNG, FINALISTS], "four of five seeds"
    growing["now"] = whole
    assert experiments() == [POOL, ENGINES, RUNG, FINALISTS, CHOSEN]


def test_every_cell_has_the_memory_format_that_is_asked_for(growing: dict[str, Stored]) -> None:
    """09 trained in torch's own format, which takes longer for these networks, where 07 had the other."""
    growing["now"] = fake_tuning.stored()
    jobs = cells(Parameters(**{**vars(PARAMETERS), "memory_format": "channels_last"}))
    assert {job.experiment for job in jobs} == {POOL, ENGINES, RUNG, FINALISTS, CHOSEN}
    assert {job.memory_format for job in jobs} == {"channels_last"}
    assert alone(jobs[0]).memory_format == "channels_last"


def test_timed_trials_have_the_memory_format_of_their_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the stored row would name one format, and the seconds be of another."""
    asked: list[StudyPlan] = []

    def run_study(plan: StudyPlan, path: Path, site: Site) -> None:
        asked.append(plan)
        raise KeyboardInterrupt

    monkeypatch.setattr(timing, "run_study", run_study)
    for name in ("contiguous", "channels_last"):
        with pytest.raises(KeyboardInterrupt):
            timing.timed_study(grid._engine_cells(PARAMETERS)[0].with_(memory_format=name), Site())
    assert [plan.base.memory_format for plan in asked] == ["contiguous", "channels_last"]


def test_only_the_chosen_network_and_the_ladder_open_test_images(growing: dict[str, Stored]) -> None:
    growing["now"] = fake_tuning.stored()
    scored = {job.experiment: job.scored_on for job in cells(PARAMETERS)}
    opens_none = {POOL: "held_out", ENGINES: "none", FINALISTS: "held_out"}
    assert scored == {**opens_none, RUNG: "validation", CHOSEN: "validation"}


def test_finalists_are_the_best_at_the_end_and_the_chosen_one_the_best_of_these() -> None:
    stored = fake_tuning.stored()
    pool = found(stored)
    assert pool.best(3) == [0, 1, 2]
    finalists = finalists_of_pool(pool, 2, 16)
    assert finalists == [pool.setting(0), pool.setting(1)]
    assert pool.best(2, below=1) == [0], "settings that a run adds later are no finalists"
    assert best_of_finalists(stored.records, finalists, 5) == pool.setting(1), "its held-out loss is lower"
    assert best_of_finalists(stored.records, finalists, 6) is None


def test_a_finalist_that_diverged_is_out_and_blocks_nobody() -> None:
    """The mean over its other seeds would have won; and its seed is never trained again."""
    stored = fake_tuning.stored()
    finalists = finalists_of_pool(found(stored), 2, 16)
    records = stored.records.copy()
    lost = (records["experiment"] == FINALISTS) & (records["seed"] == 3) & (records["validation_loss"] < 0.2)
    assert lost.sum() == 1
    records.loc[lost, ["status", "reason"]] = ["failed", f"{DIVERGED} in step 3"]
    assert best_of_finalists(records, finalists, 5) == finalists[0]
    assert best_of_finalists(records, finalists[1:], 5) is None


def test_settings_come_back_from_the_table_as_they_were_drawn() -> None:
    """Yes and no are 1 and 0 there, and whole numbers become fractions beside empty fields."""
    pool = found(fake_tuning.stored())
    for number in range(16):
        drawn = fake_tuning.read_space(fake_tuning.repository_root()).draw(0, number)
        assert pool.setting(number) == drawn
        assert {name: type(value) for name, value in pool.setting(number).items()} == {
            name: type(value) for name, value in drawn.items()
        }


def test_what_diverged_is_no_finalist_and_what_is_of_another_space_is_left_out() -> None:
    tables = fake_tuning.pool_tables(diverged=3)
    older = tables["trials"].head(4).assign(space="0123456789abcdef", round=50)
    tables["trials"] = pd.concat([older, tables["trials"]], ignore_index=True)
    pool = found(Stored(fake_tuning.stored().records, tables))
    assert list(pool.whole.index) == list(range(13)) and len(pool.trials) == 16
    assert pool.values().shape == (13, 8) and pool.epoch_seconds[1] == pytest.approx((16 + 1) / 8)


def test_the_pool_comes_first_and_goes_on_when_nobody_waits(growing: dict[str, Stored]) -> None:
    early = planned(PARAMETERS, cells(PARAMETERS))
    assert early[0].headline and early[0].rounds == 4, "four settings a round"
    assert early[-1].cells == (2, 1) and early[-1].visits == (2, 1, 1, 2), "two engines beside one"
    growing["now"] = fake_tuning.stored()
    late = planned(PARAMETERS, [job.with_(data_source="real", images=2000) for job in cells(PARAMETERS)])
    assert not late[0].headline and late[0].rounds == grid.MOST_SETTINGS // grid.SETTINGS_PER_ROUND
    *others, chosen = late[1:-1]
    assert [each.rounds for each in others] == [15, *[5] * 5], "seeds; the plain CNN is what tuning is compared with"
    assert chosen.rounds == 15, "published accuracies are held against it"
