"""What runs in Spark's driver process, a child of the launcher's supervisor: `main()`, with FILE as its argument.

mode "ranks"    TorchDistributor starts the ranks as tasks of one barrier stage; they meet the launcher themselves
mode "driver"   the driver itself is the team's only rank, for peers whose driver owns the loop (see `peers.sparknet`)

FILE is JSON: mode, conf (Spark's settings), ranks, settings (for `rank_process.begin`) or rendezvous (the socket of the
launcher).
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def main() -> None:
    options = json.loads(Path(sys.argv[1]).read_text())
    if options["mode"] == "ranks":
        _run_ranks(options)
    else:
        _serve_as_rank(options)


def open_session(conf: dict[str, str]) -> Any:
    """A SparkSession with these settings."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in conf.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session


def _run_ranks(options: dict[str, Any]) -> None:
    """Returns when the launcher has stopped all ranks. Raises what Spark raises."""
    from pyspark.ml.torch.distributor import TorchDistributor

    from lockstep.engine.launch.spark.rank_process import begin
    from lockstep.engine.launch.spark.torchrun import run_file

    _log_on(options["conf"].get("spark.driver.host", ""))
    session = open_session(options["conf"])
    try:
        distributor = TorchDistributor(num_processes=options["ranks"], local_mode=False, use_gpu=False)
        distributor._run(begin, run_file, options["settings"])
    finally:
        session.stop()


def _log_on(address: str) -> None:
    """Let the server that collects what tasks print listen at `address` alone; pyspark's own takes all interfaces."""
    if not address:
        return
    import socketserver

    from pyspark.ml.torch import log_communication

    class Server(socketserver.ThreadingTCPServer):
        def __init__(self, place: tuple[str, int], handler: Any) -> None:
            super().__init__((address, place[1]), handler)

    names = {name: getattr(socketserver, name) for name in dir(socketserver) if not name.startswith("__")}
    log_communication.socketserver = SimpleNamespace(  # type: ignore[attr-defined]
        **names | {"ThreadingTCPServer": Server}
    )


def _serve_as_rank(options: dict[str, Any]) -> None:
    """Serve the launcher's calls on the rank that is this process, until it says stop or has gone."""
    from lockstep.engine.groups.board import Board
    from lockstep.engine.groups.threads import ThreadGroup
    from lockstep.engine.launch.rendezvous import meet_launcher
    from lockstep.engine.launch.worker import Rank, redirect_output, reporter, serve_call

    control, settings, board, output = meet_launcher(options["rendezvous"])
    redirect_output(output)
    report = reporter(control)
    sys.path[:] = settings.path
    ranks: list[Rank] = []
    session = None
    try:
        session = open_session(options["conf"])
        group = ThreadGroup.of(1, Board(board, 1))[0]
        ranks = [Rank(group, settings.cores[0], settings.threads_per_worker, report)]
    except BaseException:
        report(("unready", traceback.format_exc()))
    else:
        report(("ready", 0, 1))
    with contextlib.suppress(EOFError, OSError):
        while (message := control.recv()) is not None:
            serve_call(ranks, message, report)
    with contextlib.suppress(Exception):
        if session is not None:
            session.stop()
    os._exit(0)  # without waiting for a rank that may be stuck
