"""VGG16, configuration D without batch normalisation (Simonyan & Zisserman 2015, arXiv:1409.1556, Table 1).

The same layers, order and initialisation as torchvision's `vgg16`.
"""

from __future__ import annotations

import torch
from torch import nn

from lockstep.engine.models.check import check_classes

_CHANNELS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


def vgg16(classes: int = 3) -> nn.Sequential:
    """VGG16 for float images [n, 3, 224, 224]; returns logits [n, classes]; 3 are the papers'.

    134,272,835 parameters for 3 classes, 138,357,544 for 1,000. At 224 x 224 the last pooling gives 7 x 7, so
    torchvision's adaptive pooling would do nothing and is left out. Initialised from torch's generator
    (`torch.manual_seed`). Raises ValueError for fewer than 2 classes.
    """
    check_classes(classes, "vgg16")
    layers: list[nn.Module] = []
    before = 3
    for block in _CHANNELS:
        for channels in block:
            layers += [nn.Conv2d(before, channels, kernel_size=3, padding=1), nn.ReLU(inplace=True)]
            before = channels
        layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
    layers.append(nn.Flatten())
    for inputs in (512 * 7 * 7, 4096):
        layers += [_linear(inputs, 4096), nn.ReLU(inplace=True), nn.Dropout(p=0.5)]
    layers.append(_linear(4096, classes))
    model = nn.Sequential(*layers)
    _initialise(model)
    return model


def _linear(inputs: int, outputs: int) -> nn.Module:
    # Left empty, since `_initialise` fills it: 120 million numbers drawn twice would cost a second at each start.
    device = torch.get_default_device()
    layer: nn.Module = nn.utils.skip_init(nn.Linear, inputs, outputs, device=device)  # type: ignore[no-untyped-call]
    return layer


def _initialise(model: nn.Sequential) -> None:
    # torch's own initialisation makes the signal vanish through 16 layers: nothing would be learnt from scratch.
    for layer in model:
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, 0.0, 0.01)
        else:
            continue
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
