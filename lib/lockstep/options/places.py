"""What a job says of where it runs: launchers, hosts, Spark."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from lockstep.options.learning import OF_LEARNING
from lockstep.options.values import ON_SPARK, ONE_HOST, JobError

if TYPE_CHECKING:
    from lockstep.job import Job


def check_hosts(job: Job) -> None:
    if job.hosts > 1 and job.launcher in ONE_HOST:
        raise JobError(f"hosts={job.hosts}: launcher={job.launcher!r} stays on this machine; give 'mpiexec'")
    if job.host_workers == "threads":
        if job.launcher != "mpiexec" or job.sync != "shared_memory":
            raise JobError(
                f"host_workers='threads' with launcher={job.launcher!r}, sync={job.sync!r}: only 'mpiexec' starts such "
                "hosts, and only 'shared_memory' trains on them"
            )
        if job.workers % job.hosts:
            raise JobError(f"host_workers='threads': workers={job.workers} can't be split over hosts={job.hosts}")
    if job.link_bits_per_second and job.hosts == 1:
        raise JobError(f"link_bits_per_second={job.link_bits_per_second!r} with hosts=1: no link; give hosts=2")
    if job.link_bits_per_second and job.launcher != "mpiexec":
        raise JobError(
            f"link_bits_per_second={job.link_bits_per_second!r} does nothing with launcher={job.launcher!r}; only "
            "'mpiexec' emulates links"
        )


def check_spark(job: Job) -> None:
    if job.launcher in ON_SPARK:
        if job.hosts > 1:
            raise JobError(
                f"hosts={job.hosts} with launcher={job.launcher!r}: the hosts are the cluster's, which a master's URL "
                "names (LOCKSTEP_SPARK_MASTER); give hosts=1"
            )
        if job.device != "cpu":
            raise JobError(f"device={job.device!r} with launcher={job.launcher!r}: ranks get no GPU; give 'cpu'")
        if job.transport == "rma":
            raise JobError(f"transport='rma' is one-sided MPI, which launcher={job.launcher!r} has not; give 'sockets'")
    only_driver = job.launcher == "spark_driver"
    if (job.sync == "sparknet") != only_driver and not (
        only_driver and job.sync == "local" and job.experiment in ("overhead", "preparation")
    ):
        raise JobError(
            f"sync={job.sync!r} with launcher={job.launcher!r}: 'sparknet' runs on 'spark_driver', and nothing else "
            "does; on Spark others run with launcher='spark'"
        )
    if job.sync == "sparknet":
        _check_sparknet(job)


def _check_sparknet(job: Job) -> None:
    defaults = {field.name: field.default for field in fields(job)}
    for name in OF_LEARNING:
        if getattr(job, name) != defaults[name]:
            raise JobError(
                f"{name}={getattr(job, name)!r} is not built for sync='sparknet'; give another sync and 'spark'"
            )
    if job.executor_data == "none":
        raise JobError("sync='sparknet' with executor_data='none': say where images are read; give 'rdd' or 'files'")
    if job.input != "jpeg":
        raise JobError(f"input={job.input!r} with sync='sparknet': executors decode as they go; give 'jpeg'")
    if job.opt_weight == "best":
        raise JobError("opt_weight='best' is Algorithm 1's; with sync='sparknet' give 'none' or 'mean'")
    if job.opt_weight == "none" and (job.exchange_every != 1 or job.state_averaged):
        raise JobError(
            f"exchange_every={job.exchange_every}, state_averaged={job.state_averaged} with gradients, which are of "
            "one step, and whose optimiser is the driver's; to average parameters give opt_weight='mean'"
        )
    if job.model_parallel != "none" or job.copies != "kept":
        raise JobError(
            f"model_parallel={job.model_parallel!r}, copies={job.copies!r} with sync='sparknet': only 'none' and "
            "'kept' are possible"
        )
