"""One rank of a job under plain mpiexec or srun, on one host or many: `main()`, told everything as JSON.

No launcher watches here, so each rank has a watchdog thread, and a rank that fails ends the whole job itself.

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

from lockstep.groups import GroupAborted, allgather_object
from lockstep.groups.board import Board
from lockstep.groups.library import MPI, start
from lockstep.groups.memory import common_file
from lockstep.groups.mpi import MpiGroup
from lockstep.job import Job
from lockstep.launch.base import cores_of, usable_cores
from lockstep.launch.environment import interface_problem
from lockstep.launch.watchdog import Watchdog
from lockstep.launch.worker import pin
from lockstep.loop import Site, Trace, run_job
from lockstep.measure.grid import summarise
from lockstep.peers import PEERS
from lockstep.usecases import Source, find_images, use_case

CANT_START = 3  # exit code
_FIRST_SPEAKS_SECONDS = 2.0  # who fails because of another lets that one say why


def main() -> None:
    """Train as told; rank 0 prints images per second and loss."""
    told = json.loads(sys.argv[1])
    job = Job.from_json(json.dumps(told["job"]))
    if problem := interface_problem(os.environ.get("GLOO_SOCKET_IFNAME", "")):
        _leave(f"{problem}; name another with --iface")  # the MPI library would quietly take another itself
    start()
    if job.ranks != MPI.COMM_WORLD.size:
        _refuse(job, MPI.COMM_WORLD.size)
    group = MpiGroup.world()
    board = Board(common_file(group.node, 32 * group.size), group.size)
    group.write_to(board)
    ranks = dict(allgather_object(group.node, (group.rank, os.getpid())))
    watchdog = Watchdog(board, ranks, told["stall_seconds"], lambda _: MPI.COMM_WORLD.Abort(1))
    try:
        job, traces = _train(job, group, told)
    except BaseException as error:
        if isinstance(error, GroupAborted):
            time.sleep(_FIRST_SPEAKS_SECONDS)
        reason = f"rank {group.rank} raised {type(error).__name__}: {error} ({board.where(group.rank)})"
        print(f"lockstep: {reason}\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(1)
    watchdog.close()
    if group.rank == 0:
        print(told_result(job, traces), flush=True)
    group.barrier()
    MPI.Finalize()


def _refuse(job: Job, size: int) -> None:
    if size != 1:
        _leave(f"{size} ranks were started for a job of {job.ranks}")
    _leave(
        f"MPI started {job.ranks} separate jobs of one rank instead of one job of {job.ranks}: mpiexec and the "
        "library that mpi4py uses belong to different MPIs; use the mpiexec of that library"
    )


def _leave(reason: str) -> NoReturn:
    """End this rank, and with it the job, before anybody waits for it in MPI."""
    print(f"lockstep: {reason}", file=sys.stderr, flush=True)
    os._exit(CANT_START)


def _train(job: Job, group: MpiGroup, told: dict[str, Any]) -> tuple[Job, list[Trace]]:
    """The job as it really was (hosts, images), and all traces."""
    cores = cores_of(group.node.rank, job.cores_per_worker, usable_cores())
    pin(cores)
    torch.set_num_threads(job.threads_per_worker)
    torch.set_flush_denormal(True)
    job = _placed(job, group, cores)
    # One rank of each node may have to write the stand-in; the others then find it.
    if group.node.rank == 0:
        find_images(use_case(job.use_case), told["data_dir"] or None, told["images"])
    group.barrier()
    source = find_images(use_case(job.use_case), told["data_dir"] or None, told["images"])
    job = job.with_(images=source.train_images, data_source=source.kind)
    trace = PEERS.get(job.sync, run_job)(job, group, _site(job, source, told))
    return job, allgather_object(group, trace)


def _placed(job: Job, group: MpiGroup, cores: list[int]) -> Job:
    """The job with its true number of hosts: nodes whose ranks share memory. Rank 0 shows them. Collective."""
    places = allgather_object(group, f"rank {group.rank}: node {group.hosts[group.rank]}, cores {cores}")
    hosts = len(set(group.hosts))
    if group.rank == 0:
        print("\n".join(places), flush=True)
        if job.hosts not in (1, hosts):  # 1: nobody named any
            print(f"lockstep: --hosts names {job.hosts}, MPI placed the ranks on {hosts}", file=sys.stderr, flush=True)
    return job.with_(hosts=hosts)


def _site(job: Job, source: Source, told: dict[str, Any]) -> Site:
    """Checkpoints after every epoch, of however many batches."""
    return Site(
        data_root=source.root,
        skipped=source.skipped,
        checkpoint=told["checkpoint"] or None,
        checkpoint_every_steps=-(-job.images // job.global_batch_size),
        resume=told["resume"],
    )


def told_result(job: Job, traces: list[Trace]) -> str:
    """The line that the command ends with."""
    name = f"{job.use_case} {job.sync}, {job.workers} workers on {job.hosts} host{'s' if job.hosts > 1 else ''}"
    if not traces[0].steps:
        return f"{name}: nothing left to train, the checkpoint has all {job.warmup_steps + job.steps} steps"
    found = summarise(job, traces)
    return (
        f"{name}, {len(traces[0].steps)} steps: "
        f"{found['images_per_second']:.2f} images/s, {found['step_seconds']:.4f} s a step, "
        f"loss {found['train_loss']:.7f} ({job.data_source} images)"
    )
