"""What Spark costs without any training: scheduling, broadcasting and summing parameters; and preparing images.

Each runs on the driver of a `spark_driver` team, with an executor per worker.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from lockstep.engine.data.folders import open_folder
from lockstep.engine.data.parquet import decode_parquet, write_parquet
from lockstep.engine.data.sources import Photos
from lockstep.engine.files import scratch_folder
from lockstep.engine.groups import Group
from lockstep.engine.job import Job
from lockstep.engine.training.loop import Site, Trace
from lockstep.engine.usecases import use_case

PREPARED_SIDE = 256  # pixels of the shorter side
_QUALITY = 88


def run_overhead(job: Job, group: Group, site: Site | None = None) -> Trace:
    """Seconds (median over `job.steps`) of a job with a task per worker: an empty one (`spark_schedule`), one that is
    handed `job.message_bytes` by broadcast, or one whose tasks' `message_bytes` each are added up by treeAggregate."""
    del site
    from pyspark.sql import SparkSession

    context = SparkSession.builder.getOrCreate().sparkContext
    actions: dict[str, Callable[[Any], object]] = {
        "spark_schedule": _schedule,
        "spark_broadcast": _broadcast,
        "spark_aggregate": _aggregate,
    }
    numbers = context.parallelize(range(job.workers), job.workers)
    group.enter("exchange")
    values = np.ones(job.message_bytes // 4, np.float32)
    seconds = []
    for _ in range(job.warmup_steps + job.steps):
        start = time.perf_counter()
        actions[job.strategy]((context, numbers, values))
        seconds.append(time.perf_counter() - start)
    return Trace(group.rank, scores={"step_seconds": statistics.median(seconds[job.warmup_steps :])})


def _schedule(given: tuple[Any, Any, np.ndarray]) -> object:
    return given[1].map(int).count()


def _broadcast(given: tuple[Any, Any, np.ndarray]) -> object:
    context, numbers, values = given
    shared = context.broadcast(values)
    seen = numbers.map(lambda _: len(shared.value)).sum()
    shared.destroy(blocking=True)  # as SparkNet does
    return seen


def _aggregate(given: tuple[Any, Any, np.ndarray]) -> object:
    _, numbers, values = given
    count = len(values)

    def add(one: Any, other: Any) -> Any:
        return other if one is None else one + other

    return numbers.map(lambda _: np.ones(count, np.float32)).treeAggregate(None, add, add, depth=2)


def run_preparation(job: Job, group: Group, site: Site | None = None) -> Trace:
    """Images per second from files to Parquet (`parquet_write`), or from Parquet to decoded tensors (`parquet_read`).

    The images are the use case's, first scaled to PREPARED_SIDE pixels on the shorter side, which does not count; the
    files come from the page cache. What is read back is compared with the files; raises ValueError where it differs.
    """
    assert site is not None
    from pyspark.sql import SparkSession

    session = SparkSession.builder.getOrCreate()
    whole = (site.use_case or use_case(job.use_case)).open("train", site.data_root, job.images, site.skipped)
    assert isinstance(whole, Photos)
    group.enter("input")
    with scratch_folder("lockstep-parquet-") as folder:
        photos = _scaled(whole, folder / "photos")
        seconds: dict[str, float] = {}
        for _ in range(2):  # the first time warms up the Python workers
            start = time.perf_counter()
            write_parquet(session, photos, folder / "prepared", job.workers)
            middle = time.perf_counter()
            batches = decode_parquet(session, photos, folder / "prepared", _first_photo)
            seconds = {"parquet_write": middle - start, "parquet_read": time.perf_counter() - middle}
        _check(photos, batches)
    took = seconds[job.strategy]
    return Trace(group.rank, scores={"images_per_second": len(photos) / took, "step_seconds": took})


def _first_photo(ids: np.ndarray, images: np.ndarray) -> float:
    """The mean of sample 0 in the batch that holds it, since Spark may return batches in any order; 0 in the others."""
    return float(images[ids == 0].mean()) if 0 in ids else 0.0


def _check(photos: Photos, batches: list[tuple[int, float]]) -> None:
    """Raises ValueError unless all photos came back, and the first one equals its decoded file."""
    if sum(count for count, _ in batches) != len(photos):
        raise ValueError(f"{sum(count for count, _ in batches)} of {len(photos)} images came back from Parquet")
    first = np.arange(1)
    if abs(_first_photo(first, photos.load(first, 0, 0)) - sum(found for _, found in batches)) > 1e-6:
        raise ValueError("images that came back from Parquet are not those that were written")


def _scaled(photos: Photos, folder: Path) -> Photos:
    """The same photos as JPEG files with PREPARED_SIDE pixels on the shorter side."""
    for sample_id in range(len(photos)):
        name = photos.classes[int(photos.labels[sample_id])]
        target = folder / "train" / name / f"{sample_id:06d}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(photos.path(sample_id)) as image:
            image.draft("RGB", (PREPARED_SIDE, PREPARED_SIDE))
            factor = PREPARED_SIDE / min(image.size)
            size = (max(1, round(image.width * factor)), max(1, round(image.height * factor)))
            image.convert("RGB").resize(size).save(target, quality=_QUALITY)
    return open_folder(folder, "train")
