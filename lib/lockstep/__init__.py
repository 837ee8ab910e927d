"""Lockstep: how should I distribute the training of this model on these machines, and what does it really gain?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstep.api import Trained, train

__version__ = "0.1.0"
__all__ = ["Trained", "train"]


def __getattr__(name: str) -> Any:
    # On demand: the figures and the command line must not wait for torch.
    if name in __all__:
        from lockstep import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
