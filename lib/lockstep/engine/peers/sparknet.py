"""SparkNet: Spark's driver owns the training loop. Its options and guarantees; the loop is in `sparknet_driver`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.engine.declared import Equality, Values
from lockstep.engine.options import JobError, Option
from lockstep.engine.peers.base import Peer
from lockstep.engine.sync.parameter_server import OPT_WEIGHT
from lockstep.engine.sync.private import EXCHANGE_EVERY, STATE_AVERAGED, equality_of_averages

if TYPE_CHECKING:
    from lockstep.engine.groups import Group
    from lockstep.engine.job import Job
    from lockstep.engine.training.loop import Site, Trace

EXECUTOR_DATA = Option(
    "executor_data", "none", "executors get images as a cached RDD (rdd), or read them as files (files)",
    choices=("none", "rdd", "files"), same_on_resume=False,
)  # fmt: skip


class SparkNet(Peer):
    """Executors send gradients in every step, or parameters after `exchange_every` (tau) steps of their own."""

    does = "Spark's driver owns the loop: it broadcasts parameters, executors train, and treeAggregate sums results"
    label = "SparkNet"
    preserves = (
        "equal where executors send gradients (opt_weight='none'); where they send parameters, equal if these are "
        "averaged in every step with an optimiser that is linear in the gradient (SGD)"
    )
    options = (EXCHANGE_EVERY, STATE_AVERAGED, OPT_WEIGHT, EXECUTOR_DATA)
    usual = {"executor_data": "files"}
    launchers = ("spark_driver",)
    learns = False

    @classmethod
    def check(cls, values: Values) -> None:
        if values["executor_data"] == "none":
            raise JobError(
                "sync='sparknet' with executor_data='none': say where images are read; give 'rdd' or 'files'"
            )
        if values["input"] != "jpeg":
            raise JobError(f"input={values['input']!r} with sync='sparknet': executors decode as they go; give 'jpeg'")
        if values["opt_weight"] == "best":
            raise JobError("opt_weight='best' is Algorithm 1's; with sync='sparknet' give 'none' or 'mean'")
        if values["opt_weight"] == "none" and (values["exchange_every"] != 1 or values["state_averaged"]):
            raise JobError(
                f"exchange_every={values['exchange_every']}, state_averaged={values['state_averaged']} with gradients, "
                "which are of one step, and whose optimiser is the driver's; to average parameters give "
                "opt_weight='mean'"
            )
        if values["model_parallel"] != "none" or values["copies"] != "kept":
            raise JobError(
                f"model_parallel={values['model_parallel']!r}, copies={values['copies']!r} with sync='sparknet': only "
                "'none' and 'kept' are possible"
            )

    @classmethod
    def equality(cls, values: Values) -> Equality:
        if values["opt_weight"] == "none":
            return Equality("exact", "the driver steps with the sum of all gradients")
        return equality_of_averages(values)

    @classmethod
    def averages_parameters(cls, values: Values) -> bool:
        return bool(values["opt_weight"] != "none")

    @staticmethod
    def run(job: Job, group: Group, site: Site | None = None) -> Trace:
        """Raises ExecutorFailed if Spark gives up."""
        from lockstep.engine.peers import sparknet_driver

        return sparknet_driver.run_sparknet(job, group, site)
