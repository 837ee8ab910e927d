"""One rank of a job under plain mpiexec or srun, on one host or many: `main`, whose argument is JSON.

No launcher exists here, so each rank has a failure-detector thread, and a rank that fails ends the whole job itself.

    {"job": {...}, "data_dir": "", "images": 0, "stall_seconds": 600, "checkpoint": "", "resume": false}
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from typing import Any, NoReturn

import torch

from lockstep.engine.cores import cores_of_rank, pin, usable_cores
from lockstep.engine.groups import GroupAborted, allgather_object
from lockstep.engine.groups.board import Board
from lockstep.engine.groups.library import MPI, start_mpi
from lockstep.engine.groups.memory import common_file
from lockstep.engine.groups.mpi import MpiGroup
from lockstep.engine.job import Job
from lockstep.engine.launch.environment import interface_problem
from lockstep.engine.launch.failure_detector import FailureDetectorThread
from lockstep.engine.launch.mpi.commands import wrong_size
from lockstep.engine.peers import run_function
from lockstep.engine.training.first_pass import first_pass_of
from lockstep.engine.training.loop import Site, Trace
from lockstep.engine.usecases import Source, find_images, use_case

CANT_START = 3  # exit code
_GRACE_SECONDS = 2.0  # a rank that fails because of another rank lets that one report first
_FORWARD_SECONDS = 0.5  # mpiexec ends with the job, and drops what its proxies have not handed on by then


def main() -> None:
    """Train; rank 0 prints images per second and loss."""
    options = json.loads(sys.argv[1])
    job = Job.from_json(json.dumps(options["job"]))
    if problem := interface_problem(os.environ.get("GLOO_SOCKET_IFNAME", "")):
        _exit_with(f"{problem}; name another with --iface")  # Otherwise the MPI library would silently use another one.
    start_mpi()
    if problem := wrong_size(job.ranks, MPI.COMM_WORLD.size):
        _exit_with(problem)
    group = MpiGroup.world()
    board = Board(common_file(group.node, 32 * group.size), group.size)
    group.write_to(board)
    ranks = dict(allgather_object(group.node, (group.rank, os.getpid())))
    detector = FailureDetectorThread(board, ranks, options["stall_seconds"], _end_job)
    try:
        job, traces = _train(job, group, options)
    except BaseException as error:
        if isinstance(error, GroupAborted):
            time.sleep(_GRACE_SECONDS)
        reason = f"rank {group.rank} raised {type(error).__name__}: {error} ({board.where(group.rank)})"
        print(f"lockstep: {reason}\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        _end_job()
    detector.close()
    if group.rank == 0:
        print(result_line(job, traces), flush=True)
    group.barrier()
    MPI.Finalize()


def _end_job() -> None:
    """End all ranks, once what this one said has been handed on."""
    time.sleep(_FORWARD_SECONDS)
    MPI.COMM_WORLD.Abort(1)


def _exit_with(reason: str) -> NoReturn:
    """End this rank, and with it the job, before another rank waits for it in MPI."""
    print(f"lockstep: {reason}", file=sys.stderr, flush=True)
    os._exit(CANT_START)


def _train(job: Job, group: MpiGroup, options: dict[str, Any]) -> tuple[Job, list[Trace]]:
    """The job as it really ran (hosts, images), and all traces."""
    cores = cores_of_rank(group.node.rank, job.cores_per_worker, usable_cores())
    pin(cores)
    torch.set_num_threads(job.threads_per_worker)
    torch.set_flush_denormal(True)
    job = _with_hosts(job, group, cores)
    # One rank of each node may have to write the stand-in images; the others then find them.
    if group.node.rank == 0:
        find_images(use_case(job.use_case), options["data_dir"] or None, options["images"])
    group.barrier()
    source = find_images(use_case(job.use_case), options["data_dir"] or None, options["images"])
    job = job.with_(images=source.train_images, data_source=source.kind)
    draws = allgather_object(group, group.rank == 0 and _draws(job, source))[0]
    trace = run_function(job.sync)(job, group, _site(job, source, options, draws))
    return job, allgather_object(group, trace)


def _draws(job: Job, source: Source) -> bool:
    """Whether the model draws what is not keyed by sample; prints what a first pass of it shows. Raises JobError."""
    first = first_pass_of(job, source.root, source.skipped)
    for caution in first.cautions:
        print(f"lockstep: {caution}", file=sys.stderr, flush=True)
    return first.draws


def _with_hosts(job: Job, group: MpiGroup, cores: list[int]) -> Job:
    """The job with its true number of hosts (nodes whose ranks share memory). Rank 0 prints them. Collective."""
    positions = allgather_object(group, f"rank {group.rank}: node {group.hosts[group.rank]}, cores {cores}")
    hosts = len(set(group.hosts))
    if group.rank == 0:
        print("\n".join(positions), flush=True)
        if job.hosts not in (1, hosts):  # 1: no host was named
            print(f"lockstep: --hosts names {job.hosts}, MPI placed the ranks on {hosts}", file=sys.stderr, flush=True)
    return job.with_(hosts=hosts)


def _site(job: Job, source: Source, options: dict[str, Any], draws: bool) -> Site:
    """Where the rank trains, with checkpoints after every epoch."""
    return Site(
        data_root=source.root,
        skipped=source.skipped,
        checkpoint=options["checkpoint"] or None,
        checkpoint_every_steps=-(-job.images // job.global_batch_size),
        resume=options["resume"],
        draws=draws,
    )


def result_line(job: Job, traces: list[Trace]) -> str:
    """The line that the command ends with."""
    name = f"{job.use_case} {job.sync}, {job.workers} workers on {job.hosts} host{'s' if job.hosts > 1 else ''}"
    if not traces[0].steps:
        return f"{name}: nothing left to train, the checkpoint has all {job.warmup_steps + job.steps} steps"
    from lockstep.measure.summary import summarise  # pandas: rank 0 alone, when all have trained

    found = summarise(job, traces)
    return (
        f"{name}, {len(traces[0].steps)} steps: "
        f"{found['images_per_second']:.2f} images/s, {found['step_seconds']:.4f} s a step, "
        f"loss {found['train_loss']:.7f} ({job.data_source} images)"
    )
