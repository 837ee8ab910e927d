"""A real Spark cluster on this machine: master and worker as processes of their own, executors as the worker's.

    launcher --- guard --- master   (JVM)
                    |----- worker   (JVM) --- executor 0 (JVM) --- Python worker ...
                                         |--- executor 1 (JVM) --- Python worker ...

The guard ends all of them together, also after kill -9 of the launcher. Spark itself listens on
127.0.0.1 alone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Mapping
from types import TracebackType

from lockstep.launch.guarded import Guard
from lockstep.launch.spark.java import SparkError, find_java, spark_home
from lockstep.launch.watch import tail

LOOPBACK = "127.0.0.1"
START_SECONDS = 90.0
_REGISTERED = "Successfully registered with master"
_NO_LIMIT = "1t"  # of what executors may take together: each is told how much it may
_TRIES = 3  # a port that was free a moment ago may be taken
_TAKEN = ("BindException", "Address already in use")
_NO_MEMORY = ("Could not reserve enough space", "insufficient memory", "Too small maximum heap", "Invalid maximum heap")
# Somebody's own settings would make this cluster another one.
_FOREIGN = ("SPARK_", "PYSPARK_")
# Few collector threads, since the cores are the workers'. Parameters are few large objects, which this collector does
# not move; and once idle, a JVM gives back what it holds no more.
JVM_OPTIONS = (  # those of Java 17 are nothing to an older one
    "-XX:+IgnoreUnrecognizedVMOptions -XX:+UseG1GC -XX:ParallelGCThreads=1 -XX:ConcGCThreads=1 "
    "-XX:G1HeapRegionSize=16m -XX:G1PeriodicGCInterval=5000 -XX:MinHeapFreeRatio=5 -XX:MaxHeapFreeRatio=10 "
    "-XX:CICompilerCount=2 -XX:-UsePerfData"
)


def spark_environment(environment: Mapping[str, str], local: bool = True) -> dict[str, str]:
    """`environment` for a process that starts Spark's JVMs; `local`: they are this machine's alone. SparkError."""
    own = {name: value for name, value in environment.items() if not (local and name.startswith(_FOREIGN))}
    own |= {"JAVA_HOME": find_java().home, "SPARK_HOME": spark_home()}
    return own | ({"SPARK_LOCAL_IP": LOOPBACK} if local else {})


def in_folder(folder: str) -> str:
    """Options of a JVM that keeps its temporary files in `folder`."""
    return f"{JVM_OPTIONS} -Djava.io.tmpdir={folder}"


def free_port() -> int:
    with socket.socket() as asked:
        asked.bind((LOOPBACK, 0))
        return int(asked.getsockname()[1])


def explained(output: str) -> str:
    """What a JVM's last words mean for the reader, as the end of a sentence; empty if they say nothing known."""
    if any(sign in output for sign in _NO_MEMORY):
        return "Java did not get the memory it asked for; give LOCKSTEP_SPARK_MEMORY a smaller value, such as 512m"
    if any(sign in output for sign in _TAKEN):
        return "its port is taken; give another one, or 0 for any that is free"
    return ""


class StandaloneCluster:
    """`with StandaloneCluster(cores=2) as cluster: ... cluster.url`. Starting and stopping can be repeated.

    `cores`: of the one worker, a core per executor; `port`: of the master, 0 for any that is free. Raises SparkError,
    with what the JVMs said, if it does not start.
    """

    def __init__(self, cores: int, port: int = 0) -> None:
        self.cores, self.port = cores, port
        self.url, self.folder = "", ""
        self._guard: Guard | None = None

    def start(self) -> None:
        if self._guard is not None:
            return
        if self.port and _listens(self.port):
            raise SparkError(f"port {self.port} of {LOOPBACK} is taken; give another one, or 0 for any that is free")
        for attempt in range(_TRIES):
            try:
                self._start(self.port or free_port())
                return
            except SparkError as error:
                if self.port or attempt == _TRIES - 1 or "its port is taken" not in str(error):
                    raise

    def _start(self, port: int) -> None:
        # Short: Spark's own names come below it, and pid files of others must not be met.
        self.folder = tempfile.mkdtemp(prefix="lockstep-spark-")
        url = f"spark://{LOOPBACK}:{port}"
        try:
            environment = spark_environment(os.environ) | {
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_DAEMON_JAVA_OPTS": f"{in_folder(self.folder)} -Dspark.port.maxRetries=0",
                "TMPDIR": self.folder,  # of executors and ranks too: what a kill leaves there goes with the folder
                "SPARK_LOCAL_DIRS": self.folder,
                "SPARK_WORKER_DIR": self.folder,
            }
            self._guard = Guard(self._commands(url, port), environment, [self.folder])
            self._wait()
        except BaseException:
            self.stop()
            raise
        self.url = url

    def _commands(self, url: str, port: int) -> dict[str, list[str]]:
        run = ["bash", os.path.join(spark_home(), "bin", "spark-class")]
        master = [*run, "org.apache.spark.deploy.master.Master", "--host", LOOPBACK, "--port", str(port)]
        worker = [*run, "org.apache.spark.deploy.worker.Worker", "--host", LOOPBACK, "--cores", str(self.cores)]
        worker += ["--memory", _NO_LIMIT, "--work-dir", self.folder, "--webui-port", "0", url]
        return {"master": [*master, "--webui-port", "0"], "worker": worker}

    def _wait(self) -> None:
        """Until the worker has registered. Raises SparkError."""
        assert self._guard is not None
        deadline = time.monotonic() + START_SECONDS
        while _REGISTERED not in (said := tail(self._guard.output)):
            if self._guard.ended(0.1):
                raise SparkError(f"the Spark cluster ended before it had started: {self.problem()}\n{said}")
            if time.monotonic() > deadline:
                raise SparkError(f"the Spark cluster has not started within {START_SECONDS:.0f} s\n{said}")

    @property
    def pids(self) -> list[int]:
        """Of the guard, below which all of it runs; empty while stopped."""
        return [self._guard.process.pid] if self._guard is not None else []

    def problem(self) -> str:
        """What became of a cluster that ends or has ended; empty if it runs or was stopped."""
        if self._guard is None or not (self._guard.culprit() or self._guard.ended()):
            return ""
        why = explained(tail(self._guard.output))
        return f"the Spark {self._guard.culprit() or 'cluster ended'}" + (f": {why}" if why else "")

    def stop(self) -> None:
        """End all of it now. Can be repeated."""
        self.url = ""
        if self._guard is not None:
            self._guard.stop()
            self._guard.output.close()
            self._guard = None
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = ""

    def __enter__(self) -> StandaloneCluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _listens(port: int) -> bool:
    with socket.socket() as asked, contextlib.suppress(OSError):
        asked.settimeout(1.0)
        asked.connect((LOOPBACK, port))
        return True
    return False


def check_reachable(url: str, seconds: float = 10.0) -> None:
    """Raises SparkError unless something answers at a `spark://host:port` (other kinds of master are not tried).

    Spark itself tries for minutes.
    """
    if not url.startswith("spark://"):
        return
    for place in url.removeprefix("spark://").split(","):  # of several masters one leads
        host, _, port = place.rpartition(":")
        if not host or not port.isdigit():
            raise SparkError(f"master {url!r} is not possible; give spark://host:port")
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=seconds):
            return
    raise SparkError(
        f"nobody answers at {url} within {seconds:.0f} s: is that master running, and may this host reach it? Leave "
        "LOCKSTEP_SPARK_MASTER empty for a cluster of this machine"
    )
