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
