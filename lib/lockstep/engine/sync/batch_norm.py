"""The declaration of synchronized batch normalization, which is in `lockstep.engine.replica.batch_norm`."""

from __future__ import annotations

from lockstep.engine.declared import Values
from lockstep.engine.options import JobError, Option


def _goes_with(values: Values) -> None:
    """Raises JobError where statistics can't be those of the whole batch."""
    if not values["sync_batch_norm"]:
        return
    for field, allowed in (("framework", "torch"), ("model_parallel", "none")):
        if values[field] != allowed:
            raise JobError(
                f"sync_batch_norm=True with {field}={values[field]!r}: statistics of the whole batch are built for "
                f"{field}={allowed!r} alone; give that, or sync_batch_norm=False"
            )
    if values["device"] == "cuda" and "threads" in (values["launcher"], values["host_workers"]):
        raise JobError(
            "sync_batch_norm=True with device='cuda' and workers that are threads: torch has one backward thread per "
            "GPU and process, on which they would wait for each other for ever; give launcher='processes'"
        )


SYNC_BATCH_NORM = Option(
    "sync_batch_norm", False, "batch normalization over a step's whole batch: workers sum statistics in each layer",
    goes_with=_goes_with, of_replica=True,
)  # fmt: skip
