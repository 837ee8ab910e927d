"""When to stop: the validation loss has not fallen for some epochs."""

from __future__ import annotations


class EarlyStopping:
    """`patience`: epochs without a loss below the lowest so far that are waited for; 0: for ever."""

    def __init__(self, patience: int) -> None:
        self.patience = patience
        self.lowest = float("inf")
        self._waited = 0

    def improved(self, loss: float) -> bool:
        """Is the loss of another epoch the lowest so far? One that is no number never is."""
        if loss < self.lowest:
            self.lowest, self._waited = loss, 0
            return True
        self._waited += 1
        return False

    @property
    def over(self) -> bool:
        return 0 < self.patience <= self._waited
