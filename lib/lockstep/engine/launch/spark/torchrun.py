"""torchrun for the tasks of Spark's barrier stage, with its store where the other tasks look for it and nowhere else.

torchrun's store knows when ranks start and end. torch lets it listen on all interfaces, and believes whoever connects;
`main` binds it to the address of the first task's executor, the loopback for a cluster of this machine.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Any


def run_file(input_params: dict[str, Any], path: str, *arguments: Any, **_: Any) -> None:
    """What TorchDistributor runs in each task in place of its own `_run_training_on_pytorch_file`.

    Raises RuntimeError, with what was printed, if torchrun fails.
    """
    from pyspark.ml.torch.distributor import TorchDistributor

    options = TorchDistributor._create_torchrun_command(input_params, path, *arguments)[3:]
    code = "from lockstep.engine.launch.spark.torchrun import main; main()"
    TorchDistributor._execute_command(
        [sys.executable, "-c", code, *options], log_streaming_client=input_params.get("log_streaming_client")
    )


def main() -> None:
    """torchrun itself; it ends with the task that started it."""
    from torch.distributed import run
    from torch.distributed.elastic.rendezvous import static_tcp_rendezvous

    from lockstep.engine.launch.worker import die_with_parent

    die_with_parent(os.getppid())
    static_tcp_rendezvous.TCPStore = bound_store  # type: ignore[assignment,misc]
    run.main()


def bound_store(host: str, port: int, size: int, is_master: bool, *positional: Any, **options: Any) -> Any:
    """A TCPStore whose server, if it `is_master`, listens at `host` alone."""
    from torch.distributed import TCPStore

    if is_master:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        options["master_listen_fd"] = socket.create_server((host, port), family=family, backlog=512).detach()
    return TCPStore(host, port, size, is_master, *positional, **options)
