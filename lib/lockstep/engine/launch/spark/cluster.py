"""A real Spark cluster on this machine: master and worker as processes of their own, executors as the worker's.

    launcher --- supervisor --- master   (JVM)
                     |--------- worker   (JVM) --- executor 0 (JVM) --- Python worker ...
                                              |--- executor 1 (JVM) --- Python worker ...

The supervisor ends all of them together, also after kill -9 of the launcher. Spark itself listens on 127.0.0.1 alone,
and every connection has to prove that it knows the cluster's secret: other users can't submit. A filter sends away
whoever asks for the pages of master and worker, which ask for no secret and show what executors log.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Mapping
from types import TracebackType

from lockstep.engine.files import ScratchFolder
from lockstep.engine.launch.failures import output_tail
from lockstep.engine.launch.spark.java import SparkError, find_java, spark_home
from lockstep.engine.launch.stopped_programs import StoppedPrograms
from lockstep.engine.launch.supervisor import Supervisor

LOOPBACK = "127.0.0.1"
SECRET_VARIABLE = "_SPARK_AUTH_SECRET"
"""Where Spark looks for its secret first: never in arguments, which everybody on the machine may read."""
START_SECONDS = 90.0
_REGISTERED = "Successfully registered with master"
# No setting turns these pages off. The filter lets in a proxy of YARN's alone, here an address that is nobody's.
_FILTER = "org.apache.hadoop.yarn.server.webproxy.amfilter.AmIpFilter"
_NO_PAGES = (
    f"-Dspark.ui.filters={_FILTER} -Dspark.{_FILTER}.param.PROXY_HOSTS=192.0.2.1 "
    f"-Dspark.{_FILTER}.param.PROXY_URI_BASES=http://192.0.2.1:9"
)
_NO_LIMIT = "1t"  # for all executors together: each has a limit of its own
_TRIES = 3  # a port that was free a moment ago may be taken
_TAKEN = ("BindException", "Address already in use")
_NO_MEMORY = ("Could not reserve enough space", "insufficient memory", "Too small maximum heap", "Invalid maximum heap")
# Settings of the user's own would change this cluster.
_USER_SETTINGS = ("SPARK_", "PYSPARK_")
# Few threads collect garbage, since the cores belong to the workers. Parameters are few large objects, which this
# collector does not move; and an idle JVM gives back memory that it no longer uses.
JVM_OPTIONS = (  # An older Java ignores the options of Java 17.
    "-XX:+IgnoreUnrecognizedVMOptions -XX:+UseG1GC -XX:ParallelGCThreads=1 -XX:ConcGCThreads=1 "
    "-XX:G1HeapRegionSize=16m -XX:G1PeriodicGCInterval=5000 -XX:MinHeapFreeRatio=5 -XX:MaxHeapFreeRatio=10 "
    "-XX:CICompilerCount=2 -XX:-UsePerfData"
)


def spark_environment(environment: Mapping[str, str], local: bool = True) -> dict[str, str]:
    """`environment` for a process that starts Spark's JVMs; `local`: all of them on this machine. Raises SparkError."""
    kept = {name: value for name, value in environment.items() if not (local and name.startswith(_USER_SETTINGS))}
    kept |= {"JAVA_HOME": find_java().home, "SPARK_HOME": spark_home()}
    return kept | ({"SPARK_LOCAL_IP": LOOPBACK} if local else {})


def in_folder(folder: str) -> str:
    """Options of a JVM that keeps its temporary files in `folder`."""
    return f"{JVM_OPTIONS} -Djava.io.tmpdir={folder}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def explained(output: str) -> str:
    """What a JVM's last output means for the reader, as the end of a sentence; empty if it is of no known kind."""
    if any(sign in output for sign in _NO_MEMORY):
        return "Java did not get the memory it asked for; give LOCKSTEP_SPARK_MEMORY a smaller value, such as 512m"
    if any(sign in output for sign in _TAKEN):
        return "its port is taken; give another one, or 0 for any that is free"
    if "All masters are unresponsive" in output:
        return f"the master may ask for a secret; give it in the environment variable {SECRET_VARIABLE}"
    return ""


class StandaloneCluster:
    """`with StandaloneCluster(cores=2) as cluster: ... cluster.url`. Starting and stopping can be repeated.

    `cores`: of the one worker, a core per executor; `port`: of the master, 0 for any that is free. Raises SparkError,
    with the output of the JVMs, if it does not start.
    """

    def __init__(self, cores: int, port: int = 0) -> None:
        self.cores, self.port = cores, port
        self.url, self.folder, self.secret = "", "", ""
        self._supervisor: Supervisor | None = None

    def start(self) -> None:
        if self._supervisor is not None:
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
        # The path is short, because Spark adds names of its own; a new folder holds no pid files of other clusters.
        self._scratch = ScratchFolder("lockstep-spark-")
        self.folder = str(self._scratch.path)
        url = f"spark://{LOOPBACK}:{port}"
        self.secret = secrets.token_hex(32)
        daemons = f"-Dspark.port.maxRetries=0 -Dspark.authenticate=true -Dspark.ui.killEnabled=false {_NO_PAGES}"
        try:
            environment = spark_environment(os.environ) | {
                SECRET_VARIABLE: self.secret,
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_DAEMON_JAVA_OPTS": f"{in_folder(self.folder)} {daemons}",
                "TMPDIR": self.folder,  # of executors and ranks too: what a kill leaves there goes with the folder
                "SPARK_LOCAL_DIRS": self.folder,
                "SPARK_WORKER_DIR": self.folder,
            }
            self._supervisor = Supervisor(self._commands(url, port), environment, [self.folder])
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
        """Wait until the worker has registered. Raises SparkError."""
        assert self._supervisor is not None
        deadline, stopped = time.monotonic() + START_SECONDS, StoppedPrograms()
        while _REGISTERED not in (output := output_tail(self._supervisor.output)):
            if self._supervisor.ended(0.1):
                raise SparkError(f"the Spark cluster ended before it had started: {self.problem()}\n{output}")
            if name := stopped.look(self.pids):
                raise SparkError(f"the Spark cluster can't start: {name} was stopped (SIGSTOP)\n{output}")
            if time.monotonic() > deadline:
                raise SparkError(f"the Spark cluster has not started within {START_SECONDS:.0f} s\n{output}")

    @property
    def pids(self) -> list[int]:
        """The process id of the supervisor, below which all of it runs; empty while stopped."""
        return [self._supervisor.process.pid] if self._supervisor is not None else []

    def problem(self) -> str:
        """Why a cluster is ending or has ended; empty if it runs or was stopped."""
        if self._supervisor is None or not (self._supervisor.cause_of_end() or self._supervisor.ended()):
            return ""
        why = explained(output_tail(self._supervisor.output))
        cause = self._supervisor.cause_of_end() or "cluster ended"
        ended = f"cluster ended: {cause}" if cause.startswith("its ") else cause
        return f"the Spark {ended}" + (f": {why}" if why else "")

    def stop(self) -> None:
        """End all of it now. Can be repeated."""
        self.url = ""
        if self._supervisor is not None:
            self._supervisor.stop()
            self._supervisor.output.close()
            self._supervisor = None
        if self.folder:
            self._scratch.close()
            self.folder = ""

    def __enter__(self) -> StandaloneCluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _listens(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.settimeout(1.0)
        probe.connect((LOOPBACK, port))
        return True
    return False


def check_reachable(url: str, seconds: float = 10.0) -> None:
    """Raises SparkError unless something answers at a `spark://host:port` (other kinds of master are not tried).

    Spark itself tries for minutes.
    """
    if not url.startswith("spark://"):
        return
    for address in url.removeprefix("spark://").split(","):  # of several masters one leads
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise SparkError(f"master {url!r} is not possible; give spark://host:port")
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=seconds):
            return
    raise SparkError(
        f"nobody answers at {url} within {seconds:.0f} s: is that master running, and may this host reach it? Leave "
        "LOCKSTEP_SPARK_MASTER empty for a cluster of this machine"
    )
