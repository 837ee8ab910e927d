"""Makes the network of a small cluster inside a namespace, then becomes a given command. Without packages.

    host0 namespace          host1 namespace             each has a name, an address and an interface of its own
      eth1 10.77.0.1           eth1 10.77.0.2
      | tbf: rate              | tbf: rate                what a host sends is limited to the link's rate,
      v0 tbf: rate             v1 tbf: rate               and so is what it receives: two senders share the rate
      +------- bridge ---------+---- 10.77.0.254, where mpiexec runs

Everything ends with the last process inside: nothing of it has a name outside the namespaces.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

NET, OWN = "10.77.0", 254
INTERFACE = "eth1"
_BURST_BYTES = 64 << 10  # that a link may send at once; with more, short messages would pass at memory speed
# Hydra calls it like ssh: options, a host, and words that a shell joins again. Every host has its own shared memory.
_ENTER = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1; shift
exec ip netns exec "$host" unshare --uts --mount sh -c "mount -t tmpfs none /dev/shm; hostname $host; exec $*"
"""


def main() -> None:
    """`emulated_network.py {"hosts": 2, "bits_per_second": 1e9, "folder": ..., "command": [...]}`, in a namespace."""
    settings = json.loads(sys.argv[1])
    run_command("mount", "--make-rprivate", "/")
    os.makedirs("/run/netns", exist_ok=True)
    run_command("mount", "-t", "tmpfs", "none", "/run/netns")
    run_command("hostname", "switch")
    write_names(settings["folder"], settings["hosts"])
    for words in commands(settings["hosts"], settings["bits_per_second"]):
        run_command(*words)
    script = os.path.join(settings["folder"], "enter")
    with open(script, "w") as stream:
        stream.write(_ENTER)
    os.chmod(script, 0o700)
    os.execvp(settings["command"][0], settings["command"])


def commands(hosts: int, bits_per_second: float) -> list[list[str]]:
    """The commands of `ip` and `tc` that make the network."""
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


def write_names(folder: str, hosts: int) -> None:
    """Give the hosts names, for every process of this mount namespace."""
    path = os.path.join(folder, "hosts")
    lines = ["127.0.0.1 localhost", f"{NET}.{OWN} switch", *(f"{NET}.{host + 1} host{host}" for host in range(hosts))]
    with open(path, "w") as stream:
        stream.write("\n".join(lines) + "\n")
    run_command("mount", "--bind", path, "/etc/hosts")


def run_command(*words: str) -> None:
    """Run a command; if it fails, end the program with a message that names it."""
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"the emulated network can't be made: {' '.join(words)}: {done.stderr.strip()}")


if __name__ == "__main__":
    main()
