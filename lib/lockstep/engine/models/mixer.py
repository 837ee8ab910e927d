"""A small MLP-Mixer (Tolstikhin et al. 2021, "MLP-Mixer: An all-MLP Architecture for Vision", arXiv:2105.01601)."""

from __future__ import annotations

from torch import Tensor, nn

from lockstep.engine.models.check import check_classes

_SIDE, _PATCH = 64, 8
_CHANNELS, _TOKEN_UNITS, _CHANNEL_UNITS, _BLOCKS = 256, 128, 1024, 6


class MixerBlock(nn.Module):
    """A perceptron over the patches, then one over the channels (Figure 1): [n, patches, channels], each beside a
    shortcut."""

    def __init__(self, patches: int) -> None:
        super().__init__()
        self.before_patches, self.before_channels = nn.LayerNorm(_CHANNELS), nn.LayerNorm(_CHANNELS)
        self.over_patches = _perceptron(patches, _TOKEN_UNITS)
        self.over_channels = _perceptron(_CHANNELS, _CHANNEL_UNITS)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.over_patches(self.before_patches(x).transpose(1, 2)).transpose(1, 2)
        out: Tensor = x + self.over_channels(self.before_channels(x))
        return out


class Mixer(nn.Module):
    """Patches of 8 x 8 pixels, the blocks, and the mean over all patches."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, _CHANNELS, _PATCH, stride=_PATCH)
        self.blocks = nn.Sequential(*(MixerBlock((_SIDE // _PATCH) ** 2) for _ in range(_BLOCKS)))
        self.norm = nn.LayerNorm(_CHANNELS)
        self.head = nn.Linear(_CHANNELS, classes)

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.norm(self.blocks(self.patches(x).flatten(2).transpose(1, 2)))
        out: Tensor = self.head(mixed.mean(dim=1))
        return out


def _perceptron(width: int, units: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, units), nn.GELU(), nn.Linear(units, width))


def mlp_mixer(classes: int) -> nn.Module:
    """For float images [n, 3, 64, 64]; returns logits [n, classes]. 3,311,498 parameters for 10 classes.

    Raises ValueError for fewer than 2 classes.
    """
    check_classes(classes, "mlp_mixer")
    return Mixer(classes)
