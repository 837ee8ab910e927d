"""A folder of photos, one folder for each class; here it is made up of coloured pictures.

photos/
  train/
    grass/   0.jpg, 1.jpg, ...
    sky/     0.jpg, 1.jpg, ...
  test/
    ...
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from torch import nn

import lockstep

COLOURS = {"grass": (60, 150, 40), "sky": (90, 140, 220)}


def write_photos(folder: Path) -> None:
    dice = np.random.default_rng(0)
    for split, count in (("train", 24), ("test", 8)):
        for name, colour in COLOURS.items():
            place = folder / split / name
            place.mkdir(parents=True)
            for number in range(count):
                pixels = np.clip(dice.normal(colour, 60, size=(240, 320, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(place / f"{number}.jpg")


def network() -> nn.Module:
    """Photos come as [3, 224, 224], from 0 to 1; half of those to train on are mirrored in each epoch."""
    patches = nn.Conv2d(3, 8, kernel_size=16, stride=16)
    return nn.Sequential(patches, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        write_photos(Path(folder))
        trained = lockstep.train(network, folder, workers=2, epochs=4, batch_size=8, lr=0.05)
    assert trained.losses[-1] < trained.losses[0]
    print(f"{trained.images_per_second:.0f} images/s, {trained.scores}")
