"""Stragglers on real ranks: which jobs need the server of policies, and what their texts mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lockstep.engine.declared import Values
from lockstep.engine.option_text import NoOptions, named_text, parse_named
from lockstep.engine.options import JobError, option

NO_DELAYS, REAL, PLAIN = "none", "real", "wait_for_all"
UNKNOWN = 2**53
"""Images of a job that does not know them yet: nothing is refused for want of them before the server knows."""


@dataclass(frozen=True)
class SleepCosts:
    """What a micro-batch takes on an emulated worker: `lockstep.predict.cost_model.Costs` of one core."""

    fixed_seconds: float = option(0.0, "of a micro-batch, whatever its size", least=0)
    image_seconds: float = option(0.0, "of an image", least=0)


_COMPUTE = {REAL: NoOptions, "sleep": SleepCosts}


def emulated_costs(text: str) -> Callable[[int], float] | None:
    """Seconds of a micro-batch by its images, as `Job.compute` says; None: what it really takes. Raises JobError."""
    costs = sleep_costs(text)
    return None if costs is None else lambda images: costs.fixed_seconds + images * costs.image_seconds


def sleep_costs(text: str) -> SleepCosts | None:
    """What `Job.compute` says that a micro-batch takes; None: what it really takes. Raises JobError."""
    name, costs = parse_named(text, _COMPUTE, "compute")
    if (written := named_text(name, costs)) != text:
        raise JobError(f"compute={text!r} is not in canonical form; write {written!r}")
    return None if name == REAL else costs


def check_delays(text: str) -> None:
    """Raises JobError for delays that do not exist or are not in canonical form."""
    if text == NO_DELAYS:
        return
    from lockstep.engine.delays import canonical  # numpy

    if (written := canonical(text)) != text:
        raise JobError(f"delays={text!r} is not in canonical form; write {written!r}")


def _check_for_workers(text: str, workers: int, seed: int) -> None:
    """Raises JobError for delays that so many real ranks can't have. A trace is read when they start: a stored job may
    name one that is not here."""
    if text == NO_DELAYS or text.startswith("trace:"):
        return
    from lockstep.engine.delays import make_delays

    if make_delays(text, workers, seed).of_messages:
        raise JobError(
            f"delays={text!r} slows messages, and what one takes alone only a simulator knows: give lockstep simulate "
            "--delays link, or emulate a slow network with hosts and link_bits_per_second"
        )


def decides_on_work(values: Values) -> bool:
    """Does the policy decide who computes what, so that workers wait for orders? Waiting for all does only where it is
    compared with such policies: under delays, or with emulated computing."""
    if values["policy"] == "none":
        return False
    if values["delays"] != NO_DELAYS or values["compute"] != REAL or values["policy"] != PLAIN:
        return True
    return bool(values["policy_options"] or values["micro_batch"] or values["standby"])


def check_policy(values: Values) -> None:
    """Raises JobError for what the server of policies can't do, by name, and for options that these workers forbid."""
    from lockstep.engine.policies import POLICIES, Setting, canonical_options, policy_of

    name = values["policy"]
    needs = POLICIES[name].needs
    if needs.local_steps:
        raise JobError(f"policy={name!r} needs steps of the workers' own, which no server has; give sync='local_sgd'")
    if (values["servers"], values["shards"]) != (1, 1):
        raise JobError(
            f"policy={name!r} with delays={values['delays']!r} has one decider: give servers=1 and shards=1, not "
            f"servers={values['servers']} and shards={values['shards']}"
        )
    plainly = {"compression": "none", "opt_weight": "none", "class_weights": "none", "sync_batch_norm": False}
    for field, plain in plainly.items():
        if values[field] != plain:
            raise JobError(f"{field}={values[field]!r} does not go with policy={name!r}, which weighs gradients itself")
    if values["early_stopping_epochs"]:
        raise JobError(
            f"early_stopping_epochs={values['early_stopping_epochs']} with policy={name!r}: its workers have no epochs "
            "in common; give epochs"
        )
    _check_for_workers(values["delays"], values["workers"], values["seed"])
    options = values["policy_options"]
    if (written := canonical_options(name, options)) != options:
        raise JobError(f"policy_options={options!r} is not in canonical form; write {written!r}")
    workers, batch = values["workers"], values["global_batch_size"]
    images = values["images"] or UNKNOWN
    setting = Setting(workers, images, batch, values["micro_batch"], values["standby"], values["seed"])
    policy_of(name, options, setting)
