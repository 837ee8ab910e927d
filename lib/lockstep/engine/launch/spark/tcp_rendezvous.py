"""Where processes of any machine meet their launcher: a TCP port. Each of them proves that it knows the team's key.

launcher                                     process of a rank, started by an executor
listens at address:port
                     <--- connects ---
                     <--> both prove that they know the key (HMAC, `multiprocessing.connection`)
                     <--- Hello ---          rank, host, process id, where it listens for the other ranks
--- SparkSettings -->                        once all have arrived
                     <--- ready ---
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

from lockstep.engine.files import ScratchFolder
from lockstep.engine.launch.rendezvous import TEAM_FOLDER

_GREETING_SECONDS = 30.0


@dataclass(frozen=True)
class Hello:
    """What a process first sends."""

    rank: int
    size: int
    host: str
    pid: int
    address: tuple[str, int]  # where it listens for the other ranks


@dataclass(frozen=True)
class SparkSettings:
    """What the launcher sends to every process once all have arrived."""

    hosts: list[str]  # of each rank
    addresses: list[tuple[str, int]]  # of each rank
    cores: list[int]  # of this rank; empty: it chooses some of its host's
    threads_per_worker: int
    board: str  # a path to the launcher's board; empty for a process on another host
    path: list[str]  # sys.path; empty on another host


class TcpRendezvous:
    """The launcher's side, which exists as long as the team. `address`: of this host, as the executors reach it."""

    def __init__(self, address: str, key: bytes) -> None:
        self.key = key
        self._scratch = ScratchFolder(TEAM_FOLDER)
        self.folder = str(self._scratch.path)
        self._socket = socket.create_server((address, 0), backlog=512)
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self._closed = False
        self._arrived: queue.SimpleQueue[Connection] = queue.SimpleQueue()
        threading.Thread(target=self._accept_all, name="lockstep-rendezvous", daemon=True).start()

    def next(self, seconds: float) -> Connection | None:
        """The next process that knows the key; None if none comes in time."""
        try:
            return self._arrived.get(timeout=seconds)
        except queue.Empty:
            return None

    def _accept_all(self) -> None:
        while not self._closed:
            with contextlib.suppress(OSError):  # A process may have gone again.
                peer, _ = self._socket.accept()
                threading.Thread(target=self._greet, args=(peer,), daemon=True).start()

    def _greet(self, peer: socket.socket) -> None:
        # In a thread of its own, so that one that connects and then says nothing keeps no other process waiting.
        timer = threading.Timer(_GREETING_SECONDS, _hang_up, (peer,))
        timer.daemon = True
        timer.start()
        control = Connection(os.dup(peer.fileno()))  # a copy, so that the timer still has one to shut down
        try:
            deliver_challenge(control, self.key)
            answer_challenge(control, self.key)
        except (AuthenticationError, OSError, EOFError):
            control.close()
        else:
            self._arrived.put(control)
        finally:
            timer.cancel()
            peer.close()

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # which wakes the thread; a socket closed under it would not
        self._socket.close()
        self._scratch.close()


def _hang_up(peer: socket.socket) -> None:
    with contextlib.suppress(OSError):
        peer.shutdown(socket.SHUT_RDWR)
