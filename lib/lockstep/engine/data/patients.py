"""Which images are of one patient, as far as the names of their files say.

In the public chest X-ray set (Kermany et al. 2018) a name begins with a patient: `person123_bacteria_45.jpeg` is image
45 of patient 123, `IM-0115-0001.jpeg` and `NORMAL2-IM-0117-0001-0002.jpeg` are of patients IM-0115 and NORMAL2-IM-0117.
The source does not say whether one number is one patient: the same personN occurs with bacteria and with a virus, in
the training and in the test folder. Here it counts as one, the careful reading: images that may be of one patient are
never taken for independent ones. IM-0117 and NORMAL2-IM-0117 count as two, since the prefix begins a new series.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from lockstep.engine.data.small import SmallImages
from lockstep.engine.data.sources import ImageData, Photos

_PATIENT = re.compile(rb"(person\d+)_|((?:NORMAL\d*-)?IM-\d+)-")
UNKNOWN = 0
"""The number of a patient whom the name of the file does not tell."""


def patient_of(name: bytes) -> bytes:
    """The patient whom a file's name begins with, such as b"person123"; empty where it tells none."""
    found = _PATIENT.match(name)
    return (found[1] or found[2]) if found else b""


def patient_or_name(data: ImageData, sample_id: int) -> bytes:
    """The patient of an image, or else the name of its file; of an image without a file its number."""
    name = _name_of(data, sample_id)
    return patient_of(name) or name


def numbered_patients(*sets: ImageData) -> list[NDArray[np.int64]]:
    """The patient of each image, int64 [images], of each of these sets: the same number for the same patient in all of
    them, from 1 in the order of the names, and UNKNOWN where the name tells none."""
    patients = [[patient_of(_name_of(data, place)) for place in range(len(data))] for data in sets]
    known = sorted({each for own in patients for each in own if each})
    numbers = {b"": UNKNOWN} | {patient: number for number, patient in enumerate(known, start=1)}
    return [np.array([numbers[each] for each in own], np.int64) for own in patients]


def _name_of(data: ImageData, sample_id: int) -> bytes:
    return data.name(sample_id) if isinstance(data, Photos | SmallImages) else str(sample_id).encode()
