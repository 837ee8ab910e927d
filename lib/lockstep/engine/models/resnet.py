"""A small residual network (He et al. 2016, "Deep Residual Learning for Image Recognition", arXiv:1512.03385).

ResNet-18 of Table 1 with one basic block in each of its four stages instead of two, and behind the stem of §4.2, a
3 x 3 convolution without pooling, as images of 32 x 32 need it.
"""

from __future__ import annotations

from torch import Tensor, nn

from lockstep.engine.models.check import check_classes

_WIDTHS = (64, 128, 256, 512)


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut (Figure 2), which is a 1 x 1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        same = stride == 1 and inputs == outputs
        projection = (nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = nn.Identity() if same else nn.Sequential(*projection)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = nn.functional.relu(self.body(x) + self.shortcut(x))
        return out


def resnet10(classes: int) -> nn.Sequential:
    """For float images [n, 3, 32, 32] or larger; returns logits [n, classes]. 4,903,242 parameters for 10 classes.

    Raises ValueError for fewer than 2 classes.
    """
    check_classes(classes, "resnet10")
    layers: list[nn.Module] = [nn.Conv2d(3, _WIDTHS[0], 3, padding=1, bias=False), nn.BatchNorm2d(_WIDTHS[0])]
    layers.append(nn.ReLU(inplace=True))
    before = _WIDTHS[0]
    for width in _WIDTHS:
        layers.append(BasicBlock(before, width, stride=1 if width == before else 2))
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))
