"""Python, its packages, git, the compiler and the notebooks' kernel."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from lockstep.commands.doctor.findings import GOOD, LACKING, NOTE, Finding, here
from lockstep.measure.environment import git_state, has_tensorflow

COMPILERS = ("cc", "gcc", "clang")
OPTIONAL = ("tensorflow",)
"""Packages of the lock that some rows alone need."""
OURS = ("python", "python3", f"python{sys.version_info[0]}.{sys.version_info[1]}")
"""What a kernel specification may call its interpreter so that Jupyter takes the one it runs on itself."""


def check_python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if (3, 11) <= tuple(sys.version_info[:2]) < (3, 13):
        return Finding("python", GOOD, version)
    fix = "conda env create -f environment.yml  # or install Python 3.11, then: make clean lint PYTHON=python3.11"
    return Finding("python", LACKING, f"{version}; 3.11 or 3.12 is needed", fix)


def check_lock() -> Finding:
    """Installed versions against requirements.lock; a local part such as +cpu is no difference."""
    path = here() / "requirements.lock"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        return Finding("lock", NOTE, f"not compared: requirements.lock can't be read ({error.strerror})",
                       "git checkout requirements.lock  # in the folder of your clone")  # fmt: skip
    pins = dict(line.split("==", 1) for line in lines if "==" in line and not line.startswith("#"))
    other = [
        f"{name} {found or 'missing'} (lock: {pin})"
        for name, pin in pins.items()
        if (found := _version(name)) != pin and (found or name not in OPTIONAL)
    ]
    if not other:
        without = [name for name in OPTIONAL if name in pins and not _version(name)]
        text = f"{len(pins) - len(without)} packages as in requirements.lock"
        return Finding("lock", GOOD, f"{text}, without {', '.join(without)}" if without else f"all {text}")
    shown = ", ".join(other[:5]) + (f" and {len(other) - 5} more" if len(other) > 5 else "")
    return Finding("lock", LACKING, f"other versions: {shown}", f"{sys.executable} -m pip install -r {path}")


def check_torch() -> Finding:
    fix = (
        f"{sys.executable} -m pip install --force-reinstall --no-deps $(grep '^torch==' {here() / 'requirements.lock'})"
    )
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: a shared library of its own is missing
        return Finding("torch", LACKING, f"can't be imported: {error}", fix)
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        return Finding("torch", LACKING, f"{torch.__version__} without gloo, which all-reduce and DDP need", fix)
    return Finding("torch", GOOD, f"{torch.__version__}, {build}, {torch.get_num_threads()} threads, gloo")


def check_tensorflow() -> Finding:
    """Rows with framework='tensorflow' alone need it. Not imported: that takes seconds."""
    if not has_tensorflow():
        detail = "not installed: rows of TensorFlow are skipped, all else runs"
        return Finding("tensorflow", NOTE, detail, f"{sys.executable} -m pip install -r {here() / 'requirements.lock'}")
    version = _version("tensorflow") or _version("tensorflow-cpu") or "of unknown version"
    return Finding("tensorflow", GOOD, f"{version}, Keras {_version('keras') or 'missing'}")


def check_compiler() -> Finding:
    """Nothing of ours is compiled; torch.compile would need one, and packages without a wheel for this machine."""
    found = next((path for name in COMPILERS if (path := shutil.which(name))), None)
    if found:
        return Finding("compiler", GOOD, f"{found} (only torch.compile and packages without a wheel need one)")
    detail = "no C compiler: nothing here needs one, but torch.compile and packages without a wheel do"
    return Finding("compiler", NOTE, detail, "sudo apt-get install gcc g++")


def check_git() -> Finding:
    """run.json keeps the commit that measured; without it, resuming can't tell whether the code is the same."""
    root = here()
    if shutil.which("git") is None:
        detail = "not installed: records can't name the code that measured them"
        return Finding("git", NOTE, detail, "sudo apt-get install git")
    state = git_state(root)
    if state["commit"]:
        changed = ", with uncommitted changes, which run.json will say" if state["dirty"] else ""
        return Finding("git", GOOD, f"commit {state['commit'][:8]}{changed}")
    detail = "no commit can be read here: records can't name the code that measured them"
    if (root / ".git").exists():
        return Finding(
            "git", NOTE, detail, f"git config --global --add safe.directory {root}  # if git calls it dubious"
        )
    return Finding("git", NOTE, detail, "git init && git add -A && git commit -m 'as downloaded'")


def check_mpi() -> Finding:
    """The mpiexec that would be used, and whether mpi4py finds a library. Whether the two fit, a start tells."""
    from lockstep.engine.launch.mpi.commands import MpiError, find_mpiexec

    fix = f"{shlex.quote(sys.executable)} -m pip install -r requirements.lock"
    try:
        found = find_mpiexec()
        importing = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.get_vendor()[0])"
        done = subprocess.run([sys.executable, "-c", importing], capture_output=True, text=True, timeout=60)
    except (MpiError, OSError, subprocess.TimeoutExpired) as error:
        return Finding("mpi", LACKING, str(error), fix)
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return Finding("mpi", LACKING, f"mpi4py can't be imported: {why}", fix)
    named = {"mpich": "MPICH", "openmpi": "Open MPI"}.get(found.kind, found.kind)
    text = f"mpiexec of {named} {'.'.join(map(str, found.version))}, mpi4py on {done.stdout.strip()}"
    if done.stdout.strip() != named:
        return Finding("mpi", LACKING, f"{text}: they would start separate jobs of one rank", fix)
    return Finding("mpi", GOOD, text)


def check_spark() -> Finding:
    """The Java that Spark would start, and the packages that its Python workers need; notebook 06 alone uses them."""
    from lockstep.engine.launch.spark.java import find_java, problem

    if why := problem():
        return Finding("spark", LACKING, why, f"{shlex.quote(sys.executable)} -m pip install -r requirements.lock")
    java = find_java()
    return Finding("spark", GOOD, f"pyspark {_version('pyspark')} on Java {java.version} in {java.home}")


def check_kernel() -> Finding:
    """`lockstep run` brings its own kernel; `make lab` and an editor take Jupyter's python3."""
    install = f"{sys.executable} -m ipykernel install --sys-prefix --name python3"
    if importlib.util.find_spec("ipykernel") is None:
        return Finding("kernel", LACKING, "ipykernel is missing: no notebook can run",
                       f"{sys.executable} -m pip install -r {here() / 'requirements.lock'}")  # fmt: skip
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    try:
        program = str(KernelSpecManager().get_kernel_spec("python3").argv[0])
    except (NoSuchKernel, IndexError, ValueError) as error:
        return Finding(
            "kernel", NOTE, f"no usable Jupyter kernel python3 ({error}): `make lab` can't run cells", install
        )
    if program not in OURS and not _same_program(program):
        detail = f"Jupyter's python3 kernel is {program}, another Python: `make lab` would not find this library"
        return Finding("kernel", NOTE, detail, install)
    return Finding("kernel", GOOD, "Jupyter's python3 is this Python")


def _same_program(program: str) -> bool:
    # Not resolved: the interpreters of two environments may be links to one file.
    return Path(program).parent.resolve() == Path(sys.executable).parent.resolve()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name).partition("+")[0]
    except metadata.PackageNotFoundError:
        return None


CHECKS = (
    check_python,
    check_lock,
    check_torch,
    check_tensorflow,
    check_mpi,
    check_spark,
    check_kernel,
    check_git,
    check_compiler,
)
