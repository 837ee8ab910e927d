"""Early stopping: training ends when the validation loss has not fallen for some epochs."""

from __future__ import annotations


class EarlyStopping:
    """`patience`: how many epochs in a row may pass without a new lowest loss; 0: any number."""

    def __init__(self, patience: int) -> None:
        self.patience = patience
        self.lowest = float("inf")
        self._waited = 0

    def improved(self, loss: float) -> bool:
        """Called with the loss of another epoch. Returns whether it is the lowest so far; NaN never is."""
        if loss < self.lowest:
            self.lowest, self._waited = loss, 0
            return True
        self._waited += 1
        return False

    @property
    def over(self) -> bool:
        return 0 < self.patience <= self._waited
