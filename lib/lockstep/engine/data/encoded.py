"""Images as bytes that can be sent: encoded where the data are, decoded where the training is."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np

from lockstep.engine.data.errors import DataError
from lockstep.engine.data.photos import decode_photo
from lockstep.engine.data.small import SmallImages
from lockstep.engine.data.sources import Arrays, Ids, ImageData, Images, Photos, Samples, sample_dtype


def encoded(data: ImageData, sample_id: int) -> bytes:
    """The bytes of one image: a photo's file, or the values of an image of `Arrays` or `SmallImages`.

    Raises DataError for an unreadable file, and for data that are augmented anew in each epoch, which can't be done
    beforehand.
    """
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
    """`data` whose images are read from the dict `contents` (sample id -> bytes) instead of from its files."""
    if isinstance(data, Photos):
        return ReceivedPhotos(**{each.name: getattr(data, each.name) for each in fields(Photos)})
    return ReceivedArrays(data)


@dataclass(frozen=True, eq=False)
class ReceivedPhotos(Photos):
    """Photos whose bytes were received instead of read from files. DataError for one that was not received."""

    contents: dict[int, bytes] = field(default_factory=dict)

    def _decode(self, sample_id: int, flip: bool, out: Images) -> None:
        decode_photo(self.path(sample_id), flip, self.size, out, _content(self.contents, sample_id))


class ReceivedArrays:
    """Images received as numbers, of a data set without augmentation."""

    def __init__(self, data: ImageData) -> None:
        self.classes, self.labels, self.shape, self.source = data.classes, data.labels, data.shape, data.source
        self.dtype = sample_dtype(data)
        self.contents: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self.labels)

    def load(self, ids: Ids, epoch: int, seed: int, out: Samples | None = None) -> Samples:
        """As `ImageData.load`; `epoch` and `seed` change nothing."""
        if out is None:
            out = np.empty((len(ids), *self.shape), self.dtype)
        for place, sample_id in enumerate(np.asarray(ids).tolist()):
            out[place] = np.frombuffer(_content(self.contents, sample_id), self.dtype).reshape(self.shape)
        return out


def _content(contents: dict[int, bytes], sample_id: int) -> bytes:
    if sample_id not in contents:
        raise DataError(f"sample {sample_id} has not come; {len(contents)} others have")
    return contents[sample_id]
