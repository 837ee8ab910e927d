"""Notebook 10's cells: each kind of delays once, in canonical form, and everything repeated as often as it varies."""

from __future__ import annotations

from pathlib import Path

import pytest

from fake_forecasts import CHOSEN
from lockstep.analysis.cells import CELL
from lockstep.engine.delays import canonical, make_delays
from lockstep.engine.usecases import Source
from lockstep.experiments.e10_straggler_forecasts.grid import (
    FORECASTS,
    KINDS,
    SHARES,
    SLOW_LOADING,
    TRACE_OF,
    TRACED,
    VARIED,
    cells,
    comparisons,
    loading,
    name_of,
)
from lockstep.experiments.e10_straggler_forecasts.measuring import lacking_trace, probes

JOBS = cells(CHOSEN)


def test_no_two_cells_are_the_same_and_each_has_a_probe() -> None:
    keys = [tuple(getattr(job, name) for name in CELL) for job in JOBS]
    assert len(set(keys)) == len(keys)
    assert {job.experiment for job in JOBS} == set(probes())


def test_every_kind_of_delays_is_made_and_has_one_name() -> None:
    texts = [*KINDS.values(), *VARIED.values(), *map(loading, SHARES)]
    assert [canonical(text) for text in texts] == texts
    assert [make_delays(loading(share), 8, 0).options.share for share in SHARES] == list(SHARES)
    assert len({*KINDS.values(), *VARIED.values()}) == len(KINDS) + len(VARIED)
    assert [name_of(text) for text in KINDS.values()] == list(KINDS)
    assert name_of("trace:file=AR.parquet") == "AR"
    of_forecasts = [job.delays for job in JOBS if job.experiment == FORECASTS]
    assert of_forecasts == [*KINDS.values(), *VARIED.values()]


def test_what_is_simulated_has_seeds_and_what_is_measured_rounds() -> None:
    rounds = {JOBS[one.cells[0]]: one.rounds for one in comparisons(JOBS)}
    found = {job.experiment: count for job, count in rounds.items()}
    seeds = {job.delays: count for job, count in rounds.items() if job.experiment == FORECASTS}
    assert seeds == dict.fromkeys(KINDS.values(), 30) | dict.fromkeys(VARIED.values(), 5)
    assert all(len(one.cells) == 1 for one in comparisons(JOBS))
    assert found[SLOW_LOADING] == 20 and found[TRACED] == 5
    assert all(job.simulated == (job.experiment in (FORECASTS, TRACED, SLOW_LOADING)) for job in JOBS)


@pytest.mark.parametrize("delays", TRACE_OF)
def test_a_trace_that_the_data_folder_lacks_is_skipped_with_the_reason(tmp_path: Path, delays: str) -> None:
    (job,) = [each for each in JOBS if each.delays == delays]
    source = Source(str(tmp_path), "real", 10)
    name = TRACE_OF[delays]
    assert lacking_trace(job, source) == (
        f"the data folder has no straggler-traces/{name}.parquet; data/README.md says where it is published"
    )
    assert lacking_trace(job, None) is not None
    (tmp_path / "straggler-traces").mkdir()
    (tmp_path / "straggler-traces" / f"{name}.parquet").touch()
    assert lacking_trace(job, source) is None
