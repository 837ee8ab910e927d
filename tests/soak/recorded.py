"""What the records and the messages of a run that was hit must be."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter

_ROUND = re.compile(r"round \d+, \d+/\d+: ")
_FAILED = re.compile(r"^round \d+, \d+/\d+: .*: failed: (?P<reason>.*)$", re.MULTILINE)
_NAMED = re.compile(r"^(rank \d+|the team) .*\(.*(phase \w+|start).*\)")
_TRACEBACK = "Traceback (most recent call last)"
_NEVER = ("Task exception was never retrieved", "Exception ignored in", "Fatal Python error")
_LOCKSTEP = re.compile(r'^  File ".*\blockstep/', re.MULTILINE)
_DETAIL = re.compile(r"^--- (rank \d+|the team) ---$")


def finished(content: bytes, rows_of_a_round: int) -> bytes:
    """The header and the rows of all rounds that stand whole at the beginning of a records.csv."""
    if b"\n" not in content:
        return b""
    lines = content[: content.rfind(b"\n") + 1].splitlines(keepends=True)
    place = next(csv.reader([lines[0].decode()])).index("round")
    rounds = [next(csv.reader(io.StringIO(line.decode())))[place] for line in lines[1:]]
    rows = Counter(rounds)
    kept = 0
    while kept < len(rounds) and rows[rounds[kept]] == rows_of_a_round:
        kept += 1
    return b"".join(lines[: kept + 1])


def rounds_told(text: str) -> int:
    """How many visits to cells a run has told of so far."""
    return len(_ROUND.findall(text))


def failures(text: str) -> list[str]:
    """Why visits to cells have failed, by the messages of a run."""
    return _FAILED.findall(text)


def complaints(text: str) -> list[str]:
    """What is wrong with the messages of a run, of which more may follow: a failure that names no rank and phase, and
    a traceback of the run itself (those of a rank that is named stand below its line)."""
    found = [f"names no rank and phase: {reason}" for reason in failures(text) if not _NAMED.match(reason)]
    if text.startswith(_TRACEBACK) and text.endswith("KeyboardInterrupt\n") and not _LOCKSTEP.search(text):
        return found  # Python itself, interrupted before it had read a line of Lockstep's
    detail = False
    for line in text.splitlines():
        detail = bool(_DETAIL.match(line)) or (detail and not _ROUND.match(line))
        if (_TRACEBACK in line and not detail) or line.startswith(_NEVER):
            found.append(f"prints {line.strip()!r}")
    return found


_KERNEL_GONE = "the kernel died | the kernel was ended while it started"
"""One of these, for it may be hit before it has begun."""


def ending_complaints(role: str, kind: str, code: int, text: str) -> list[str]:
    """What is wrong with how a run ended, of whose faults this one decides: one that hit its runner or its kernel. All
    others fail a visit to a cell at most, and the run goes on."""
    if role == "runner" and kind in ("kill", "stop"):
        return []  # it can't say a word any more
    told = text.splitlines()[-6:]
    wanted = {
        ("runner", "terminate"): ("stopped by SIGTERM", {143, -15}),
        ("runner", "interrupt"): ("stopped by SIGINT", {130, -2}),
        ("kernel", "kill"): (_KERNEL_GONE, {1}),
        ("kernel", "interrupt"): ("interrupted by SIGINT", {1}),
        ("kernel", "terminate"): (_KERNEL_GONE, {1}),
        ("kernel", "stop"): ("stopped by SIGINT", {130}),  # by whoever gave up waiting for it
    }.get((role, kind))
    if code == 0:
        return []
    if wanted is None:
        return [f"ended with {code}: {' | '.join(told)}"]
    words, codes = wanted
    if code not in codes:
        return [f"ended with {code}, not {sorted(codes)}: {' | '.join(told)}"]
    said = any(each in line for line in told for each in words.split(" | "))
    return [] if code < 0 or said else [f"does not say {words!r}: {' | '.join(told)}"]
