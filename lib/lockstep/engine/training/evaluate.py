"""Evaluation is collective: every rank predicts its share, scores are computed after a gather."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lockstep.engine.data.loader import Loader
from lockstep.engine.data.sampling import share_of
from lockstep.engine.data.sources import ImageData, are_classes
from lockstep.engine.groups import Group, allgather_object
from lockstep.engine.models.losses import Loss
from lockstep.engine.replica import Replica
from lockstep.engine.training.checkpoint import average_buffers
from lockstep.engine.training.scores import accuracy, balanced_accuracy
from lockstep.engine.training.target_scores import mean_loss, target_scores


def evaluate(
    replica: Replica, group: Group, data: ImageData, batch_size: int, loss: Loss | None = None
) -> dict[str, float]:
    """test_accuracy and test_balanced_accuracy (mean recall of the classes that occur), 0-1, over all of `data`.

    Where labels are no classes, test_loss, the mean of `loss`, and `target_scores`.
    """
    outputs = predictions(replica, group, data, batch_size)
    if not are_classes(data.labels):
        scores = target_scores(outputs, data.labels, getattr(loss, "scored", ""))
        found = {f"test_{name}": value for name, value in scores.items()}
        return found if loss is None else {"test_loss": mean_loss(loss, outputs, data.labels)} | found
    return {
        "test_accuracy": accuracy(outputs, data.labels),
        "test_balanced_accuracy": balanced_accuracy(outputs, data.labels),
    }


def predictions(replica: Replica, group: Group, data: ImageData, batch_size: int) -> NDArray[np.float32]:
    """The network's outputs for all of `data`, float32 [samples, classes] (or of any shape, for labels that are no
    classes), on every rank."""
    group.enter("evaluate")
    average_buffers(replica, group)
    everything = np.arange(len(data), dtype=np.int64)
    own, largest = (share_of(everything, rank, group.size) for rank in (group.rank, 0))
    # The same number of batches on every rank, because some replicas predict together; the last one may be empty.
    batches = [own[i : i + batch_size] for i in range(0, len(largest), batch_size)]
    outputs: list[NDArray[np.float32]] = []
    with Loader(data, seed=0) as loader:
        for number, ids in enumerate(batches):
            group.enter("evaluate")  # progress for the board, so that a long evaluation is not taken for a stall
            batch = loader.take(0, ids)
            if number + 1 < len(batches):
                loader.prefetch(0, batches[number + 1])
            if len(batch) or not replica.skips_empty:
                outputs.append(replica.predict(batch).cpu().numpy())
    gathered = allgather_object(group, np.concatenate(outputs) if outputs else None)
    return np.concatenate([each for each in gathered if each is not None])
