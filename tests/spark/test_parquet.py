"""Images to Parquet and back through Arrow, on executors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lockstep.engine.data import open_folder
from lockstep.engine.data.errors import DataError
from lockstep.engine.data.parquet import decode_parquet, write_parquet
from lockstep.engine.groups import Group
from lockstep.engine.job import NO_USE_CASE, Job
from lockstep.engine.training.loop import Site
from lockstep.measure.probes.spark import run_overhead, run_preparation
from photo_sets import photo_set, picture
from together import Teams


def _session() -> object:
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate()


def _sum(ids: np.ndarray, images: np.ndarray) -> float:
    return float(images.sum(dtype=np.float64)) + float(ids.sum())


def there_and_back(group: Group, photos: str, folder: str) -> tuple[list[tuple[int, float]], list[str]]:
    data = open_folder(photos, "train")
    for _ in range(2):  # the second replaces the first
        write_parquet(_session(), data, folder, 2)  # type: ignore[arg-type]
    back = decode_parquet(_session(), data, folder, _sum, epoch=1, seed=3)  # type: ignore[arg-type]
    return back, sorted(path.name for path in Path(folder).parent.iterdir())


def test_what_comes_back_is_what_training_would_decode(teams: Teams, tmp_path: Path) -> None:
    photos = photo_set(tmp_path / "photos")
    data = open_folder(photos, "train")
    ((back, names),) = teams.of("spark_driver", 2).call(there_and_back, str(photos), str(tmp_path / "out" / "a set"))
    assert names == ["a set"], "nothing half done stays"
    assert sum(count for count, _ in back) == len(data)
    ids = np.arange(len(data))
    assert sum(used for _, used in back) == pytest.approx(_sum(ids, data.load(ids, 1, 3)), rel=1e-5)


def refusals(group: Group, photos: str, mine: str, none: str) -> list[str]:
    """What a folder of another kind and one that does not exist are refused with; a failure would end the team."""
    data, said = open_folder(photos, "train"), []
    for refused in (
        lambda: write_parquet(_session(), data, mine, 2),  # type: ignore[arg-type]
        lambda: decode_parquet(_session(), data, none, _sum),  # type: ignore[arg-type]
    ):
        try:
            refused()
        except DataError as error:
            said.append(str(error))
    return said


def test_a_folder_that_is_none_is_left_alone(teams: Teams, tmp_path: Path) -> None:
    photos = photo_set(tmp_path / "photos")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("keep me")
    (mine / "_SUCCESS").touch()  # of another program's Parquet
    ((written, read),) = teams.of("spark_driver", 2).call(refusals, str(photos), str(mine), str(tmp_path / "none"))
    assert "is no Parquet data set of ours" in written
    assert "is no finished Parquet data set" in read
    assert (mine / "thesis.txt").read_text() == "keep me"


def test_the_yardsticks_measure(teams: Teams) -> None:
    shared = dict(launcher="spark_driver", sync="local", workers=2, use_case=NO_USE_CASE, experiment="overhead")
    seconds = {}
    for name in ("spark_schedule", "spark_broadcast", "spark_aggregate"):
        this = Job(**shared, strategy=name, message_bytes=1 << 20, steps=2)  # type: ignore[arg-type]
        seconds[name] = teams.of("spark_driver", 2).run(this, Site(), run_overhead)[0].scores["step_seconds"]
    assert all(0 < each < 60 for each in seconds.values())


def test_preparation_is_measured(teams: Teams, tmp_path: Path) -> None:
    """Seen: Spark reads the larger file first, and the photos that came first were taken for the first photos.

    Each run writes and reads; the strategy only says which of the two is told, and notebook 06 measures both.
    """
    photo_set(tmp_path / "fire-smoke", classes=("fire", "none", "smoke"))
    for path in (tmp_path / "fire-smoke" / "train" / "smoke").iterdir():
        picture(1, 900, 300).save(path)  # so the second half of the set is the larger one
    this = Job(strategy="parquet_read", launcher="spark_driver", sync="local", workers=2, experiment="preparation")
    trace = teams.of("spark_driver", 2).run(this, Site(data_root=str(tmp_path)), run_preparation)[0]
    assert trace.scores["images_per_second"] > 0
