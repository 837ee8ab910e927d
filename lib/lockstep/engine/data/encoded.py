"""Images as bytes that travel: encoded where the data are, decoded where they are trained on."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np

from lockstep.engine.data.errors import DataError
from lockstep.engine.data.photos import decode_photo
from lockstep.engine.data.small import SmallImages
from lockstep.engine.data.sources import Arrays, Ids, ImageData, Images, Photos


def encoded(data: ImageData, sample_id: int) -> bytes:
    """A photo as its file holds it; an image of `Arrays`, or a small one, as float32. Raises DataError, for other kinds
    of data too: what they augment anew in each epoch can't be done beforehand."""
    augmented = "augmented " if isinstance(data, SmallImages) and data.augment != "none" else ""
    if augmented or not isinstance(data, Photos | Arrays | SmallImages):
        raise DataError(
            f"{augmented}images of a {type(data).__name__} can't travel as bytes; give Arrays, a folder, or "
            "executor_data='files', with which executors load them"
        )
    if isinstance(data, Arrays | SmallImages):
        return data.load(np.array([sample_id]), 0, 0).tobytes()
    path = data.path(sample_id)
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise DataError(f"photo {path!r} can't be read ({error.strerror}); restore or remove the file") from error


def received(data: ImageData) -> ReceivedPhotos | ReceivedArrays:
    """`data` with the contents that have come in place of its files; put them into `contents`, by sample id."""
    if isinstance(data, Photos):
        return ReceivedPhotos(**{each.name: getattr(data, each.name) for each in fields(Photos)})
    return ReceivedArrays(data)


@dataclass(frozen=True, eq=False)
class ReceivedPhotos(Photos):
    """Photos whose files were read by somebody else. DataError for one that has not come."""

    contents: dict[int, bytes] = field(default_factory=dict)

    def _decode(self, sample_id: int, flip: bool, out: Images) -> None:
        decode_photo(self.path(sample_id), flip, self.size, out, _content(self.contents, sample_id))


class ReceivedArrays:
    """Images that came as float32 numbers, of a set that augments nothing."""

    def __init__(self, data: ImageData) -> None:
        self.classes, self.labels, self.shape, self.source = data.classes, data.labels, data.shape, data.source
        self.contents: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self.labels)

    def load(self, ids: Ids, epoch: int, seed: int, out: Images | None = None) -> Images:
        """As `ImageData.load`; `epoch` and `seed` change nothing."""
        if out is None:
            out = np.empty((len(ids), *self.shape), np.float32)
        for place, sample_id in enumerate(np.asarray(ids).tolist()):
            out[place] = np.frombuffer(_content(self.contents, sample_id), np.float32).reshape(self.shape)
        return out


def _content(contents: dict[int, bytes], sample_id: int) -> bytes:
    if sample_id not in contents:
        raise DataError(f"sample {sample_id} has not come; {len(contents)} others have")
    return contents[sample_id]
