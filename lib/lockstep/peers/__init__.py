"""What others offer, behind the same call: `run(job, group, site) -> Trace`, by the name in `Job.sync`."""

from __future__ import annotations

from collections.abc import Callable

from lockstep.loop import Trace
from lockstep.peers import ddp, sparknet

PEERS: dict[str, Callable[..., Trace]] = {"ddp": ddp.run, "sparknet": sparknet.run}
