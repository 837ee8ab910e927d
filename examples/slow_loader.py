"""Images are decoded more slowly than a network trains: `lockstep why -- python examples/slow_loader.py` says so.

One process decodes large JPEG photos for a network that needs a few milliseconds for a batch. `lockstep why` names the
input; more processes (num_workers), smaller photos, or photos that are decoded once would help.
"""

from __future__ import annotations

import io
import sys
import time

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 40.0
PHOTO_PIXELS, IMAGE_PIXELS = 1600, 64


class Photos(Dataset[tuple[Tensor, int]]):
    """JPEG photos in memory, so that neither a disk nor a network has a part in it."""

    def __init__(self, photos: int = 100_000) -> None:
        noise = np.random.default_rng(0).integers(0, 255, (PHOTO_PIXELS, PHOTO_PIXELS, 3), dtype=np.uint8)
        packed = io.BytesIO()
        Image.fromarray(noise).save(packed, "JPEG", quality=90)
        self.packed, self.photos = packed.getvalue(), photos

    def __len__(self) -> int:
        return self.photos

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        photo = Image.open(io.BytesIO(self.packed)).convert("RGB").resize((IMAGE_PIXELS, IMAGE_PIXELS))
        return torch.from_numpy(np.asarray(photo).copy()).permute(2, 0, 1).float() / 255, index % 2


def main() -> None:
    """Train for SECONDS."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 2))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    end, steps = time.monotonic() + SECONDS, 0
    for images, labels in DataLoader(Photos(), batch_size=8, num_workers=1):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        steps += 1
        if time.monotonic() > end:
            break
    print(f"{steps} steps, {steps * 8 / SECONDS:.1f} images/s")


if __name__ == "__main__":
    main()
