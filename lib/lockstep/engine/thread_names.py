"""Threads that Lockstep starts to train say so, where the system shows it: in `top -H`, and to whoever samples them.

Linux keeps a name of at most 15 bytes for each thread, in /proc/<process>/task/<thread>/comm. Python 3.11 does not
write it, and a thread hands its own down to those that it starts: OpenMP's would be called like the rank that computes.
Our names therefore end with the thread's own number, which nobody can inherit.

    rank:4711   decode:4712   sync:4713      train
    python, rank:4711 as the name of 4714    everything else: OpenMP, autograd, gloo, the JVM, Python's main thread
"""

from __future__ import annotations

import contextlib
import threading

ROLES = ("rank", "decode", "sync", "send", "receive")
"""What such a thread does: computes, decodes images, exchanges while its rank computes, moves messages out and in."""


def name_training_thread(role: str) -> None:
    """Say that the calling thread trains, and in which of ROLES; does nothing where the system keeps no such names.

    Raises ValueError for another role, which nobody would recognise.
    """
    if role not in ROLES:
        raise ValueError(f"role={role!r} is not a role of a thread that trains; give one of: {', '.join(ROLES)}")
    with contextlib.suppress(OSError), open("/proc/thread-self/comm", "w") as comm:
        comm.write(f"{role}:{threading.get_native_id()}")


def trains(name: str, thread: int) -> bool:
    """Whether a thread of this number and name is one that `name_training_thread` has named, and no heir of one."""
    role, _, number = name.strip().partition(":")
    return role in ROLES and number == str(thread)
