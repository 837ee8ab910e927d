"""Evaluation is collective: every rank predicts its share, scores are computed after a gather."""

from __future__ import annotations

import numpy as np

from lockstep.checkpoint import average_buffers
from lockstep.data.loader import Loader
from lockstep.data.sampling import share_of
from lockstep.data.sources import ImageData
from lockstep.groups import Group, allgather_object
from lockstep.replica import Replica


def evaluate(replica: Replica, group: Group, data: ImageData, batch_size: int) -> dict[str, float]:
    """test_accuracy and test_balanced_accuracy (mean recall of the classes that occur), 0-1, over all of `data`."""
    group.enter("evaluate")
    average_buffers(replica, group)
    everything = np.arange(len(data), dtype=np.int64)
    own, largest = (share_of(everything, rank, group.size) for rank in (group.rank, 0))
    # Equally many on every rank, for those that predict together: the last may have no samples.
    batches = [own[i : i + batch_size] for i in range(0, len(largest), batch_size)]
    guesses: list[np.ndarray] = []
    with Loader(data, seed=0) as loader:
        for place, ids in enumerate(batches):
            group.enter("evaluate")  # it moves on: a long evaluation is not a hang
            batch = loader.take(0, ids)
            if place + 1 < len(batches):
                loader.prefetch(0, batches[place + 1])
            if len(batch) or not replica.skips_empty:
                guesses.append(replica.predict(batch).argmax(dim=1).cpu().numpy())
    mine = np.concatenate([np.empty(0, np.int64), *guesses])
    guess, label = np.concatenate(allgather_object(group, mine)), data.labels
    recalls = [float(np.mean(guess[label == c] == c)) for c in np.unique(label)]
    return {"test_accuracy": float(np.mean(guess == label)), "test_balanced_accuracy": float(np.mean(recalls))}
