"""`lockstep mpi`, as the command line sees it. `mpi_job` does the work, and takes longer to import."""

from __future__ import annotations

from typing import Annotated

import typer

from lockstep.commands.ending import checking_arguments, clear_ends
from lockstep.commands.mpi_options import MpiOptions

_Usual = MpiOptions  # its class attributes are the defaults


@clear_ends()
def mpi(
    workers: Annotated[int, typer.Option(help="Ranks that train.")],
    use_case: Annotated[
        str, typer.Option(help="ComplexSmall | SimpleBig | Pneumonia | FaceMask | LeafDisease | BreastCancer")
    ] = _Usual.use_case,
    network: Annotated[
        str, typer.Option(help="Of use cases with small images: cnn | convlstm | convlstm2d; default: its own.")
    ] = _Usual.network,
    sync: Annotated[
        str, typer.Option(help="How replicas agree: a sync or peer of `lockstep strategies` that runs on mpiexec.")
    ] = _Usual.sync,
    steps: Annotated[int, typer.Option(help="Measured optimizer steps, after one that is discarded.")] = _Usual.steps,
    per_worker_batch_size: Annotated[
        int, typer.Option(help="Images per worker and step.")
    ] = _Usual.per_worker_batch_size,
    threads_per_worker: Annotated[
        int, typer.Option(help="Cores and threads of each rank.")
    ] = _Usual.threads_per_worker,
    precision: Annotated[str, typer.Option(help="float32 | bfloat16")] = _Usual.precision,
    data_dir: Annotated[
        str, typer.Option(help="Folder of real images, on every host; else LOCKSTEP_DATA.")
    ] = _Usual.data_dir,
    images: Annotated[
        int, typer.Option(min=0, help="Photos to use at most; 0: as many as the paper's set.")
    ] = _Usual.images,
    checkpoint: Annotated[
        str, typer.Option(help="File written after each epoch and at the end, in a folder that all hosts share.")
    ] = _Usual.checkpoint,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from --checkpoint, up to --steps in all.")
    ] = _Usual.resume,
    hosts: Annotated[str, typer.Option(help="a:4,b:4: four ranks on host a, four on b.")] = _Usual.hosts,
    hostfile: Annotated[str, typer.Option(help="The MPI library's own file of hosts.")] = _Usual.hostfile,
    iface: Annotated[str, typer.Option(help="Network interface between the hosts, such as eth1.")] = _Usual.iface,
    launcher_kind: Annotated[
        str, typer.Option(help="mpich | openmpi | slurm; by default slurm in a Slurm job, else the MPI found here.")
    ] = _Usual.launcher_kind,
    stall_seconds: Annotated[
        float, typer.Option(help="End the job if no rank of a node moves for so long.")
    ] = _Usual.stall_seconds,
    batch: Annotated[
        bool, typer.Option("--batch", help="Print a script for Slurm's sbatch; run nothing.")
    ] = _Usual.batch,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the exact command; run nothing.")] = _Usual.dry_run,
) -> None:
    """Train under plain mpiexec or srun; prints where the ranks are, images per second and loss."""
    options = MpiOptions(**locals())
    from lockstep.commands.mpi_job import prepared, start_or_print

    with checking_arguments():
        ready = prepared(options)
    if code := start_or_print(ready):
        raise typer.Exit(code if code > 128 else 1)  # 128 + n: stopped by signal n; else whatever mpiexec calls it
