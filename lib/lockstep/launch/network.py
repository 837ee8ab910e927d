"""Makes a small cluster's network inside a namespace, then becomes the command it is told. Without packages.

    host0 namespace          host1 namespace             a name, an address and an interface of its own each
      eth1 10.77.0.1           eth1 10.77.0.2
      | tbf: rate              | tbf: rate                what a host sends is held to the link's rate,
      v0 tbf: rate             v1 tbf: rate               and what it receives too: two senders share that
      +------- bridge ---------+---- 10.77.0.254, where mpiexec runs

Everything is gone when its last process is: nothing of it has a name outside the namespaces.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

NET, OWN = "10.77.0", 254
INTERFACE = "eth1"
_BURST_BYTES = 64 << 10  # what a link may send at once; more would let short messages pass at memory's speed
# Hydra calls it like ssh: options, a host, and words that a shell would put together again. Every host has shared
# memory of its own.
_ENTER = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1; shift
exec ip netns exec "$host" unshare --uts --mount sh -c "mount -t tmpfs none /dev/shm; hostname $host; exec $*"
"""


def main() -> None:
    """`network.py {"hosts": 2, "bits_per_second": 1e9, "folder": ..., "command": [...]}`, in namespaces of its own."""
    told = json.loads(sys.argv[1])
    run("mount", "--make-rprivate", "/")
    os.makedirs("/run/netns", exist_ok=True)
    run("mount", "-t", "tmpfs", "none", "/run/netns")
    run("hostname", "switch")
    names_file(told["folder"], told["hosts"])
    for words in commands(told["hosts"], told["bits_per_second"]):
        run(*words)
    script = os.path.join(told["folder"], "enter")
    with open(script, "w") as stream:
        stream.write(_ENTER)
    os.chmod(script, 0o700)
    os.execvp(told["command"][0], told["command"])


def commands(hosts: int, bits_per_second: float) -> list[list[str]]:
    """What `ip` and `tc` are told."""
    shape = f"tbf rate {int(bits_per_second)}bit burst {_BURST_BYTES} latency 100ms".split()
    words = ["ip link set lo up", "ip link add name br0 type bridge", f"ip addr add {NET}.{OWN}/24 dev br0"]
    made = [line.split() for line in [*words, "ip link set br0 up"]]
    for host in range(hosts):
        inside = f"ip -n host{host}"
        lines = [
            f"ip netns add host{host}",
            f"ip link add name v{host} type veth peer name {INTERFACE} netns host{host}",
            f"ip link set v{host} master br0 up",
            f"{inside} addr add {NET}.{host + 1}/24 dev {INTERFACE}",
            f"{inside} link set {INTERFACE} up",
            f"{inside} link set lo up",
        ]
        made += [line.split() for line in lines]
        if bits_per_second:
            made.append(["tc", "qdisc", "add", "dev", f"v{host}", "root", *shape])
            made.append(["tc", "-n", f"host{host}", "qdisc", "add", "dev", INTERFACE, "root", *shape])
    return made


def names_file(folder: str, hosts: int) -> None:
    """The hosts' names, for everybody in this mount namespace."""
    path = os.path.join(folder, "hosts")
    lines = ["127.0.0.1 localhost", f"{NET}.{OWN} switch", *(f"{NET}.{host + 1} host{host}" for host in range(hosts))]
    with open(path, "w") as stream:
        stream.write("\n".join(lines) + "\n")
    run("mount", "--bind", path, "/etc/hosts")


def run(*words: str) -> None:
    """Ends the program, saying what failed, if it does."""
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"the emulated network can't be made: {' '.join(words)}: {done.stderr.strip()}")


if __name__ == "__main__":
    main()
