"""AlexNet, the one-tower version (Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks").

The same layers, in the same order, as torchvision's `alexnet`, so that parameters can be copied across by position.
"""

from __future__ import annotations

from torch import nn

from lockstep.engine.models.check import check_classes


def alexnet(classes: int = 3) -> nn.Sequential:
    """AlexNet for float images [n, 3, 224, 224]; returns logits [n, classes]; 3 are the papers'.

    57,016,131 parameters for 3 classes, 61,100,840 for 1,000. At 224 x 224 the last pooling gives 6 x 6, so
    torchvision's adaptive pooling would do nothing and is left out. Initialised as torch's layers are, from torch's
    generator (`torch.manual_seed`). Raises ValueError for fewer than 2 classes.
    """
    check_classes(classes, "alexnet")
    return nn.Sequential(
        nn.Conv2d(3, 64, kernel_size=11, stride=4, padding=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(kernel_size=3, stride=2),
        nn.Conv2d(64, 192, kernel_size=5, padding=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(kernel_size=3, stride=2),
        nn.Conv2d(192, 384, kernel_size=3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(384, 256, kernel_size=3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(256, 256, kernel_size=3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(kernel_size=3, stride=2),
        nn.Flatten(),
        nn.Dropout(p=0.5),
        nn.Linear(256 * 6 * 6, 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(p=0.5),
        nn.Linear(4096, 4096),
        nn.ReLU(inplace=True),
        nn.Linear(4096, classes),
    )
