"""Preparing images with Spark: files -> partitioned Parquet, read back by the executors in batches through Arrow.

    files --- executors read them ---> <folder>/part-*.parquet     sample_id int64 | label int64 | content: the file
    <folder> --- Arrow batches ---> executors decode ---> float32 [samples, 3, size, size]

Parquet here is a container: photos are compressed already, so it is written without a codec of its own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lockstep.engine.data.encoded import encoded, received
from lockstep.engine.data.errors import DataError
from lockstep.engine.data.sources import Ids, ImageData, Images

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession

SCHEMA = "sample_id bigint, label bigint, content binary"
BATCH = 64
"""Images that a task holds at once."""
_OURS = "_lockstep"


def write_parquet(session: SparkSession, data: ImageData, folder: str | os.PathLike[str], partitions: int) -> None:
    """Write all images of `data` to `folder`, which appears whole or not at all; an older one there is replaced.

    `partitions`: files, of consecutive sample ids. Executors read the images, so they must see the files of `data`,
    and `folder` too. Raises DataError for a folder that holds something else, and what Spark raises.
    """
    target = Path(folder).absolute()
    if target.exists() and not (target / _OURS).exists():
        raise DataError(f"{str(target)!r} exists and is no Parquet data set of ours; name another folder or remove it")
    shared = session.sparkContext.broadcast(data)
    unfinished = target.with_name(f".{target.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        numbers = session.range(0, len(data), 1, partitions)
        written = numbers.mapInArrow(_encoder(shared), SCHEMA).write.option("compression", "uncompressed")
        written.parquet(f"file://{unfinished}")  # not as a URI, because Hadoop would take %20 for a part of the name
        (unfinished / _OURS).touch()
        if target.exists():
            shutil.rmtree(target)
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        shared.destroy()


def decode_parquet(
    session: SparkSession,
    data: ImageData,
    folder: str | os.PathLike[str],
    use: Callable[[Ids, Images], float],
    epoch: int = 0,
    seed: int = 0,
) -> list[tuple[int, float]]:
    """Decode all images of `folder` on the executors: `use(sample_ids, images)` for each batch there.

    `images` float32 [samples, channels, height, width], as `data.load` would give them, augmentation included.
    Returns (samples, what `use` returned) per batch. `data` tells classes and shape; its files are not read. Raises
    DataError for a folder that is none of `write_parquet`'s.
    """
    source = Path(folder).absolute()
    if not (source / _OURS).exists():
        raise DataError(f"{str(source)!r} is no finished Parquet data set; write it with write_parquet first")
    shared = session.sparkContext.broadcast(data)
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH))
    try:
        table = session.read.schema(SCHEMA).parquet(f"file://{source}")
        rows = table.mapInArrow(_decoder(shared, use, epoch, seed), "samples bigint, used double").collect()
    finally:
        shared.destroy()
    return [(int(row.samples), float(row.used)) for row in rows]


def _encoder(shared: Any) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def encode(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        data: ImageData = shared.value
        for batch in batches:
            numbers = batch.column(0).to_numpy()
            for start in range(0, len(numbers), BATCH):
                ids = numbers[start : start + BATCH]
                contents = pyarrow.array([encoded(data, int(number)) for number in ids], pyarrow.binary())
                columns = [pyarrow.array(ids), pyarrow.array(data.labels[ids]), contents]
                yield pyarrow.RecordBatch.from_arrays(columns, ["sample_id", "label", "content"])

    return encode


def _decoder(
    shared: Any, use: Callable[[Ids, Images], float], epoch: int, seed: int
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def decode(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        data = received(shared.value)
        out = np.empty((BATCH, *data.shape), np.float32)
        for batch in batches:
            ids = batch.column(0).to_numpy()
            data.contents.clear()
            data.contents.update(zip(ids.tolist(), batch.column(2).to_pylist(), strict=True))
            made = data.load(ids, epoch, seed, out[: len(ids)])
            columns = [pyarrow.array([len(ids)]), pyarrow.array([float(use(ids, made))])]
            yield pyarrow.RecordBatch.from_arrays(columns, ["samples", "used"])

    return decode
