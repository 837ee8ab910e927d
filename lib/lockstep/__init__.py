"""Lockstep: how should I distribute the training of this model on these machines, and what does it really gain?"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own would be read first, and Ctrl-C meanwhile show a traceback (commands/cli)
if TYPE_CHECKING:
    from typing import Any

    from lockstep.api import Trained, train
    from lockstep.tuning.own_model import Tuned, tune

__version__ = "0.1.0"
__all__ = ["Trained", "Tuned", "train", "tune"]


def __getattr__(name: str) -> Any:
    # On demand: the figures and the command line must not wait for torch.
    if name in ("Trained", "train"):
        from lockstep import api

        return getattr(api, name)
    if name in ("Tuned", "tune"):
        from lockstep.tuning import own_model

        return getattr(own_model, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
