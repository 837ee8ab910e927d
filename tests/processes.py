"""What tests ask of processes that may end at any moment."""

from __future__ import annotations

import psutil


def command(process: psutil.Process) -> str:
    """Its command line, words joined by spaces; empty once it has ended (psutil raises for a zombie too)."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def program(process: psutil.Process) -> str:
    """Its program's name; empty once it has ended."""
    try:
        return process.name()
    except psutil.Error:
        return ""


def jvms() -> set[int]:
    """The process ids of all JVMs below this process."""
    return {each.pid for each in psutil.Process().children(recursive=True) if program(each) == "java"}
