"""How large the small networks are, and what reads their features.

These belong to WHAT, but came when records had been stored: their columns stand behind those that all records have.
"""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.engine.job.clock import Clock
from lockstep.engine.models.layers import FILTERS, TORCH_HEADS
from lockstep.engine.options import JobError, choice, option


@dataclass(frozen=True)
class Sizes(Clock):
    """Units, convolutions and the head of a network for small images."""

    lstm_units: int = option(0, "of a convlstm; 0: the network's own (128)", least=0)
    dense_units: int = option(0, "of a convlstm's layer before the output; 0: the network's own (64)", least=0)
    convolutions: int = option(0, "the first ones of Table 2; 0: the network's own (3)", least=0, most=len(FILTERS))
    head: str = choice(
        "default", "lstm", "dense", "one_step", "shuffled", "frozen", "long",
        help="what reads a convlstm's features: its LSTM (default, lstm), or a control beside it",
    )  # fmt: skip

    def check(self) -> None:
        super().check()
        if self.declared_sync is not None and not self.declared_sync.learns:
            self.refuse_changed(*OF_SIZES, why=f"is not built for sync={self.sync!r}; give another sync and launcher")
        if self.framework == "tensorflow" and self.head in TORCH_HEADS:
            raise JobError(f"head={self.head!r} with framework='tensorflow': only torch has it; give framework='torch'")


OF_SIZES: tuple[str, ...] = tuple(Sizes.__annotations__)
"""Options of networks for small images whose columns came later than those of OF_LEARNING."""
