"""Who is compared: policies by the name that tables and figures show, with their options.

Options may name what depends on the cell: {share_seconds} (of computing one share) and {most} (three workers of four).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lockstep.engine.policies import Policy, Setting, policy_of


@dataclass(frozen=True)
class Contender:
    """`standby`: nodes that it needs beside the workers. `kind`: how it deals with stragglers."""

    policy: str
    options: str = ""
    standby: int = 0
    kind: str = "waits"

    def options_for(self, workers: int, share_seconds: float) -> str:
        """The options' text for so many training workers."""
        return self.options.format(share_seconds=f"{share_seconds:g}", most=max(1, workers - workers // 4))

    def made(self, setting: Setting, share_seconds: float) -> Policy:
        """Raises JobError for options that this setting does not allow."""
        return policy_of(self.policy, self.options_for(setting.training, share_seconds), setting)


WAIT, NEVER_WAIT, OURS = "wait for all", "asynchronous", "deadline"
DPRO_GRADIENT, DPRO_SHARES = "DPro-SM, gradient made up", "DPro-SM, shares by forecast"
DPRO_DETECTED, DPRO_STANDBY = "DPro-SM, detected", "DPro-SM, standby node"
TWIN = "choosing by replay"

CONTENDERS: Mapping[str, Contender] = {
    WAIT: Contender("wait_for_all"),
    "first n - 1": Contender("k_sync", kind="leaves out"),
    "first three quarters": Contender("k_sync", "k={most}", kind="leaves out"),
    "drop at 1.5 x median": Contender("drop_after_detection", kind="leaves out"),
    "gradient coding": Contender("gradient_coding_cyclic", kind="copies"),
    "stochastic gradient coding": Contender("stochastic_gradient_coding", kind="copies"),
    "batched coupon collector": Contender("coupon_collector", kind="copies"),
    "Dolly (cloning)": Contender("cloning", kind="copies"),
    "LATE": Contender("late", kind="copies"),
    "GRASS": Contender("grass", kind="copies"),
    "Wrangler": Contender("wrangler", "forecast=last", kind="forecasts"),
    "blacklisting": Contender("blacklisting", kind="leaves out"),
    "reassign by last value": Contender("reassign", kind="forecasts"),
    "reassign by best forecast": Contender("reassign", "forecast=best", kind="forecasts"),
    "pull micro-batches": Contender("pulling", kind="shares"),
    "DropCompute": Contender("drop_compute", kind="leaves out"),
    "anytime": Contender("anytime", "seconds={share_seconds}", kind="shares"),
    NEVER_WAIT: Contender("asynchronous", kind="never waits"),
    "staleness-aware": Contender("staleness_aware", kind="never waits"),
    "stale synchronous": Contender("ssp", kind="never waits"),
    DPRO_GRADIENT: Contender("dpro_sm", kind="forecasts"),
    DPRO_DETECTED: Contender("dpro_sm", "when=detected", kind="forecasts"),
    DPRO_SHARES: Contender("dpro_sm", "reading=shares", kind="forecasts"),
    DPRO_STANDBY: Contender("standby", standby=1, kind="forecasts"),
    OURS: Contender("deadline", kind="shares"),
    TWIN: Contender("choosing", kind="shares"),
}
"""In the order of tables. Wrangler forecasts by last value: a simulated node has no load that it could read."""

LEARNERS: Mapping[str, Contender] = {
    name: CONTENDERS[name]
    for name in (
        WAIT, "first n - 1", "drop at 1.5 x median", "gradient coding", "reassign by best forecast",
        "pull micro-batches", "anytime", NEVER_WAIT, "staleness-aware", "stale synchronous", OURS, TWIN,
    )
} | {
    DPRO_GRADIENT: Contender("dpro_sm", "stand_in=average,forecast=best", kind="forecasts"),
    DPRO_SHARES: Contender("dpro_sm", "reading=shares,forecast=best", kind="forecasts"),
}  # fmt: skip
"""Those that train until a loss is reached. DPro-SM's LSTM is replaced by follow-the-best here, which forecasts better
or as well on every kind of delays (notebook 10), at a hundredth of the time."""

ROUND_BY_ROUND: Mapping[str, Contender] = {
    name: CONTENDERS[name]
    for name in (WAIT, "first n - 1", "first three quarters", "reassign by last value", "anytime")
}
"""Those that ten thousand workers are simulated with: all workers of a round at once."""

RIVALS: Mapping[str, Contender] = {name: LEARNERS[name] for name in (WAIT, NEVER_WAIT, "staleness-aware", OURS)}
"""Ours, what it is measured by, and the two asynchronous ones, with momentum and a server that takes one message after
the other."""

STAND_INS: Mapping[str, Contender] = {
    WAIT: Contender("wait_for_all"),
    "left out, rescaled": Contender("k_sync"),
    **{
        f"{name} stands in": Contender("dpro_sm", f"stand_in={kind},forecast=last")
        for name, kind in (
            ("nothing", "nothing"), ("the last gradient", "last"), ("an average", "average"), ("an LSTM", "lstm"),
        )
    },
    "an LSTM's weights stand in": Contender("dpro_sm", "reading=weights,forecast=last"),
}  # fmt: skip
"""What is done about the gradient of a worker that is not waited for."""

REAL: Mapping[str, Contender] = {
    name: CONTENDERS[name]
    for name in (WAIT, "first n - 1", "drop at 1.5 x median", "reassign by last value", NEVER_WAIT)
} | {OURS: Contender("deadline", "forecast=last,noise=32")}
"""Those that run on real ranks beside the simulator. Ours is told the noise scale, which the simulator, whose workers
compute nothing there, could not measure."""
