"""The lists of strategies. A new sync, peer, policy or launcher is one file and one line here: its name and its class.

    engine/sync/ring.py             class RingSync(Sync): options = (...)  label = "..."  def step(self): ...
    engine/registry.py, in SYNCS    "ring": "lockstep.engine.sync.ring:RingSync",

The lines are text, so that this file imports no strategy: a job knows that strategies exist, and reads what their files
declare (`lockstep.engine.declared`); a strategy's file may know jobs. Such a file must be importable without torch, in
well under a second: torch belongs inside the methods that run, and tensors that a method is given bring their own.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from lockstep.engine.declared import Declared, DeclaredLauncher, DeclaredPolicy, DeclaredSync
from lockstep.engine.options import Option

SYNCS = {
    "local": "lockstep.engine.sync.local:LocalSync",
    "allreduce": "lockstep.engine.sync.allreduce:AllreduceSync",
    "shared_memory": "lockstep.engine.sync.shared_memory:SharedMemorySync",
    "local_sgd": "lockstep.engine.sync.local_sgd:LocalSgdSync",
    "parameter_server": "lockstep.engine.sync.parameter_server:ParameterServerSync",
    "gossip": "lockstep.engine.sync.gossip:GossipSync",
}
PEERS = {"ddp": "lockstep.engine.peers.ddp:DDP", "sparknet": "lockstep.engine.peers.sparknet:SparkNet"}
POLICIES = {
    "wait_for_all": "lockstep.engine.policies.wait_for_all:WaitForAll",
    "k_sync": "lockstep.engine.policies.k_sync:KSync",
    "adaptive_k": "lockstep.engine.policies.adaptive_k:AdaptiveK",
    "drop_after_detection": "lockstep.engine.policies.detection:DropAfterDetection",
    "gradient_coding_fractional": "lockstep.engine.policies.gradient_coding:FractionalRepetition",
    "gradient_coding_cyclic": "lockstep.engine.policies.gradient_coding:Cyclic",
    "stochastic_gradient_coding": "lockstep.engine.policies.approximate_coding:StochasticGradientCoding",
    "coupon_collector": "lockstep.engine.policies.approximate_coding:CouponCollector",
    "anytime": "lockstep.engine.policies.fixed_time:AnytimeMiniBatches",
    "drop_compute": "lockstep.engine.policies.fixed_time:DropCompute",
    "reassign": "lockstep.engine.policies.reassign:Reassign",
    "wrangler": "lockstep.engine.policies.resting:Wrangler",
    "blacklisting": "lockstep.engine.policies.resting:Blacklisting",
    "standby": "lockstep.engine.policies.resting:Standby",
    "dpro_sm": "lockstep.engine.policies.dpro_sm:DproSm",
    "local_sgd": "lockstep.engine.policies.local_sgd:LocalSgd",
    "asynchronous": "lockstep.engine.policies.asynchronous:Asynchronous",
    "staleness_aware": "lockstep.engine.policies.asynchronous:StalenessAware",
    "ssp": "lockstep.engine.policies.asynchronous:Ssp",
    "pulling": "lockstep.engine.policies.pulling:Pulling",
    "cloning": "lockstep.engine.policies.pulling:Cloning",
    "late": "lockstep.engine.policies.speculation:Late",
    "grass": "lockstep.engine.policies.speculation:Grass",
    "deadline": "lockstep.engine.policies.deadline:Deadline",
    "choosing": "lockstep.engine.policies.choosing:Choosing",
    "deadline_by_replay": "lockstep.engine.policies.replayed_deadline:ReplayedDeadline",
}
LAUNCHERS = {
    "threads": "lockstep.engine.launch.threads:Threads",
    "processes": "lockstep.engine.launch.processes:Processes",
    "engines": "lockstep.engine.launch.mpi.ipyparallel:Engines",
    "mpiexec": "lockstep.engine.launch.mpi.mpiexec:Mpiexec",
    "spark": "lockstep.engine.launch.spark.launchers:Spark",
    "spark_driver": "lockstep.engine.launch.spark.launchers:SparkDriver",
}
SIMULATORS = {"virtual": "lockstep.engine.launch.virtual:VirtualTime"}
"""Launchers on which nothing runs: an experiment's own probe computes what the workers would do."""


def syncs() -> dict[str, type[DeclaredSync]]:
    """The syncs of this library, by name."""
    return {name: _load(entry) for name, entry in SYNCS.items()}


def peers() -> dict[str, type[DeclaredSync]]:
    """What brings its own exchange, by the name in `Job.sync`."""
    return {name: _load(entry) for name, entry in PEERS.items()}


def syncs_and_peers() -> dict[str, type[DeclaredSync]]:
    """All that `Job.sync` may name, by name."""
    return syncs() | peers()


def policies() -> dict[str, type[DeclaredPolicy]]:
    """What a parameter server may decide by, by name."""
    return {name: _load(entry) for name, entry in POLICIES.items()}


def policy_named(name: str) -> type[DeclaredPolicy] | None:
    """The policy of that name, without loading the others; None for a job without one."""
    return _load(POLICIES[name]) if name in POLICIES else None


def launchers() -> dict[str, type[DeclaredLauncher]]:
    """Where workers may run, by name."""
    return {name: _load(entry) for name, entry in LAUNCHERS.items()}


def sync_of(name: str) -> type[DeclaredSync] | None:
    """The sync or peer of that name; None for rows that train nothing and have a name of their own."""
    entry = SYNCS.get(name) or PEERS.get(name)
    return None if entry is None else _load(entry)


def launcher_of(name: str) -> type[DeclaredLauncher] | None:
    """The launcher of that name; None for one that only a caller knows."""
    entry = LAUNCHERS.get(name) or SIMULATORS.get(name)
    return None if entry is None else _load(entry)


@functools.cache
def declared_options() -> dict[str, Option]:
    """Every option that a strategy declares, by name. Raises TypeError if two of them differ under one name."""
    found: dict[str, Option] = {}
    for kind in _all_kinds().values():
        for name, strategy in kind.items():
            for option in strategy.options:
                if found.setdefault(option.name, option) != option:
                    raise TypeError(
                        f"strategy {name!r} declares option {option.name!r} otherwise than another strategy does; "
                        "declare it once and import it from there, or give it another name"
                    )
    return found


@functools.cache
def readers() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Who reads a declared option: the field of `Job` that names them (sync, policy, launcher), and their names."""
    return {
        option: (
            field,
            tuple(name for name, strategy in kind.items() if any(o.name == option for o in strategy.options)),
        )
        for field, kind in _all_kinds().items()
        for strategy in kind.values()
        for option in (o.name for o in strategy.options)
    }


def _all_kinds() -> dict[str, dict[str, type[Declared]]]:
    """All strategies that declare fields of `Job`, by the field that names them. Policies declare none: their options
    are one text, `policy_options`, so that a job is read without loading their files."""
    return {"sync": {**syncs_and_peers()}, "launcher": {**launchers()}}


@functools.cache
def _load(entry: str) -> Any:
    """The class that a line names. Raises ImportError or AttributeError with the line."""
    module, _, name = entry.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        error.add_note(f"in the line {entry!r} of lockstep/engine/registry.py, which must be 'module:Class'")
        raise
