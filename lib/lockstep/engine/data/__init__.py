"""Images: photos in class folders, a synthetic stand-in, a reader's own arrays, and the loader of batches."""

from __future__ import annotations

from lockstep.engine.data.checking import CheckResult, check_photos
from lockstep.engine.data.errors import DataError
from lockstep.engine.data.folders import open_folder, open_photos
from lockstep.engine.data.keyed import STREAM_DROPOUT, STREAM_FLIP, keyed_uniform, mix64
from lockstep.engine.data.loader import Batch, Loader
from lockstep.engine.data.photos import decode_photo
from lockstep.engine.data.sampling import epoch_order, global_batch, share_of, steps_per_epoch
from lockstep.engine.data.sources import Arrays, ImageData, Photos
from lockstep.engine.data.synthetic import ensure_stand_in, write_stand_in

__all__ = [
    "STREAM_DROPOUT",
    "STREAM_FLIP",
    "Arrays",
    "Batch",
    "CheckResult",
    "DataError",
    "ImageData",
    "Loader",
    "Photos",
    "check_photos",
    "decode_photo",
    "ensure_stand_in",
    "epoch_order",
    "global_batch",
    "keyed_uniform",
    "mix64",
    "open_folder",
    "open_photos",
    "share_of",
    "steps_per_epoch",
    "write_stand_in",
]
