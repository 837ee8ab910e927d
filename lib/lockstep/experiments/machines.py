"""On which machines the rounds of a results folder were measured, and when, as text."""

from __future__ import annotations

from pathlib import Path

from lockstep.analysis.sentences import listed, numbered
from lockstep.analysis.stored import with_gpu
from lockstep.records import read_run


def machines(folder: Path) -> str:
    """On what the rounds of a results folder were measured, and when: A CPU, 2 cores, 24 GiB (2026-11-22). Of several
    sessions their numbers stand there, too: (sessions 0-2: 2026-11-22, session 3: 2026-11-23)."""
    days: dict[str, dict[str, list[int]]] = {}
    sessions = read_run(folder)["sessions"]
    for number, session in enumerate(sessions):
        machine, memory = session["machine"], f"{session['machine']['memory_bytes'] / 2**30:.0f} GiB"
        name = f"{machine['cpu']}, {machine['cores']} cores, {memory}, bfloat16 units: {machine['bfloat16']}"
        days.setdefault(name, {}).setdefault(session["day"], []).append(number)
    alone = len(sessions) == 1
    told = {
        name: ", ".join(day if alone else f"{numbered('session', own)}: {day}" for day, own in each.items())
        for name, each in days.items()
    }
    return "; ".join(f"{name} ({on})" for name, on in told.items())


def machines_of_claims(folder: Path) -> str:
    """`machines`; and where no machine of `folder` has a GPU and one stored the same notebook beside it, that one, for
    claims about GPUs are looked up there (`Stored.on_gpus`)."""
    beside = with_gpu(folder)
    if _gpus(folder) or not (beside / "records.csv").is_file() or not (gpus := _gpus(beside)):
        return machines(folder)
    return f"{machines(folder)}; claims about GPUs: {listed(gpus)} beside {machines(beside)}"


def _gpus(folder: Path) -> list[str]:
    return list(dict.fromkeys(gpu for each in read_run(folder)["sessions"] for gpu in each["machine"].get("gpu", [])))


def machines_in_short(folder: Path) -> str:
    """The same for a first screen: A CPU (amx) and B CPU (none), 2 cores, 24 GiB (2026-11-22 to 2026-11-25). In
    parentheses stand the units for bfloat16."""
    sessions = read_run(folder)["sessions"]
    alike: dict[str, list[str]] = {}
    for machine in (session["machine"] for session in sessions):
        size = f"{machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB"
        alike.setdefault(size, []).append(f"{machine['cpu']} ({machine['bfloat16']})")
    days = sorted(session["day"] for session in sessions)
    on = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    return f"{'; '.join(f'{listed(dict.fromkeys(each))}, {size}' for size, each in alike.items())} ({on})"
