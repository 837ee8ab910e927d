"""Spark programs of somebody else, who has found the port of a cluster's master."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lockstep.engine.launch.spark.cluster import SECRET_VARIABLE, spark_environment

STRANGER = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession

builder = SparkSession.builder.master(sys.argv[1]).config("spark.ui.enabled", "false").config("spark.cores.max", "1")
for name in sys.argv[3:]:
    builder = builder.config(name, {"spark.authenticate": "true"}.get(name, "in the environment"))
context = builder.getOrCreate().sparkContext
context.parallelize([sys.argv[2]], 1).map(lambda path: Path(path).touch()).count()
"""
AUTHENTICATED = ("spark.authenticate", "spark.authenticate.secret")


def stranger(url: str, mark: Path, secret: str | None) -> subprocess.Popen[str]:
    """A Spark program of somebody else's, which lets the cluster's owner write `mark`; `secret`: what it believes."""
    environment = {name: value for name, value in os.environ.items() if name != SECRET_VARIABLE}
    environment = spark_environment(environment) | ({} if secret is None else {SECRET_VARIABLE: secret})
    command = [sys.executable, "-c", STRANGER, url, str(mark), *(() if secret is None else AUTHENTICATED)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


class Refused:
    """Two strangers who don't know the secret of the cluster at `url`: Spark itself gives up after a minute of trying.

    They try while other tests run. `folder`: where they would leave their marks.
    """

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        secrets = {"none": None, "another": "0" * 64}
        self.programs = {name: stranger(url, folder / name, secret) for name, secret in secrets.items()}

    def said(self) -> dict[str, str]:
        """What each has said until its end. Raises subprocess.TimeoutExpired."""
        return {name: program.communicate(timeout=400)[0] for name, program in self.programs.items()}

    def end(self) -> None:
        for program in self.programs.values():
            program.kill()
            program.communicate()
