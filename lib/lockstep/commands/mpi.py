"""The options of `lockstep mpi`. `mpi_job` runs the command, and takes longer to import."""

from __future__ import annotations

from typing import Annotated

import typer


def mpi(
    workers: Annotated[int, typer.Option(help="Ranks that train.")],
    use_case: Annotated[str, typer.Option(help="What to train; see lockstep.engine.usecases.USE_CASES.")] = "SimpleBig",
    network: Annotated[
        str, typer.Option(help="Of use cases with small images: cnn | convlstm | convlstm2d; default: its own.")
    ] = "default",
    sync: Annotated[
        str, typer.Option(help="Synchronisation of the replicas; see lockstep.engine.sync.SYNCS.")
    ] = "allreduce",
    steps: Annotated[int, typer.Option(help="Measured optimiser steps, after one that is discarded.")] = 20,
    per_worker_batch_size: Annotated[int, typer.Option(help="Images per worker and step.")] = 32,
    threads_per_worker: Annotated[int, typer.Option(help="Cores and threads of each rank.")] = 1,
    precision: Annotated[str, typer.Option(help="float32 | bfloat16")] = "float32",
    data_dir: Annotated[str, typer.Option(help="Folder of real images, on every host; else LOCKSTEP_DATA.")] = "",
    images: Annotated[int, typer.Option(help="Photos to use at most; 0: as many as the paper's set.")] = 0,
    checkpoint: Annotated[
        str, typer.Option(help="File written after each epoch and at the end, in a folder that all hosts share.")
    ] = "",
    resume: Annotated[bool, typer.Option("--resume", help="Continue from --checkpoint, up to --steps in all.")] = False,
    hosts: Annotated[str, typer.Option(help="a:4,b:4: four ranks on host a, four on b.")] = "",
    hostfile: Annotated[str, typer.Option(help="The MPI library's own file of hosts.")] = "",
    iface: Annotated[str, typer.Option(help="Network interface between the hosts, such as eth1.")] = "",
    launcher_kind: Annotated[
        str,
        typer.Option(help="mpich | openmpi | slurm; by default slurm in a Slurm job, else the MPI found here."),
    ] = "",
    stall_seconds: Annotated[float, typer.Option(help="End the job if no rank of a node moves for so long.")] = 600,
    batch: Annotated[bool, typer.Option("--batch", help="Print a script for Slurm's sbatch; run nothing.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the exact command; run nothing.")] = False,
) -> None:
    """Train under plain mpiexec or srun; prints where the ranks are, images per second and loss."""
    from lockstep.commands.mpi_job import MpiOptions, execute

    raise typer.Exit(
        execute(
            MpiOptions(
                workers=workers, use_case=use_case, network=network, sync=sync, steps=steps,
                per_worker_batch_size=per_worker_batch_size, threads_per_worker=threads_per_worker,
                precision=precision, data_dir=data_dir, images=images,
                checkpoint=checkpoint, resume=resume, hosts=hosts, hostfile=hostfile, iface=iface,
                launcher_kind=launcher_kind, stall_seconds=stall_seconds, batch=batch, dry_run=dry_run,
            )
        )
    )  # fmt: skip
