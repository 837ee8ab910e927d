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
DROP_ONE, DROP_QUARTER, DETECTED = "first n - 1", "first three quarters", "drop at 1.5 x median"
CODING, SGC, DOLLY = "gradient coding", "stochastic gradient coding", "Dolly (cloning)"
LATE, GRASS, WRANGLER = "LATE", "GRASS", "Wrangler"
BY_LAST_VALUE, BY_BEST_FORECAST = "reassign by last value", "reassign by best forecast"
STALENESS_AWARE, STALE_SYNCHRONOUS = "staleness-aware", "stale synchronous"

CONTENDERS: Mapping[str, Contender] = {
    WAIT: Contender("wait_for_all"),
    DROP_ONE: Contender("k_sync", kind="leaves out"),
    DROP_QUARTER: Contender("k_sync", "k={most}", kind="leaves out"),
    DETECTED: Contender("drop_after_detection", kind="leaves out"),
    CODING: Contender("gradient_coding_cyclic", kind="copies"),
    SGC: Contender("stochastic_gradient_coding", kind="copies"),
    "batched coupon collector": Contender("coupon_collector", kind="copies"),
    DOLLY: Contender("cloning", kind="copies"),
    LATE: Contender("late", kind="copies"),
    GRASS: Contender("grass", kind="copies"),
    WRANGLER: Contender("wrangler", "forecast=last", kind="forecasts"),
    "blacklisting": Contender("blacklisting", kind="leaves out"),
    BY_LAST_VALUE: Contender("reassign", kind="forecasts"),
    BY_BEST_FORECAST: Contender("reassign", "forecast=best", kind="forecasts"),
    "pull micro-batches": Contender("pulling", kind="shares"),
    "DropCompute": Contender("drop_compute", kind="leaves out"),
    "anytime": Contender("anytime", "seconds={share_seconds}", kind="shares"),
    NEVER_WAIT: Contender("asynchronous", kind="never waits"),
    STALENESS_AWARE: Contender("staleness_aware", kind="never waits"),
    STALE_SYNCHRONOUS: Contender("ssp", kind="never waits"),
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
        WAIT, DROP_ONE, DETECTED, CODING, BY_BEST_FORECAST,
        "pull micro-batches", "anytime", NEVER_WAIT, STALE_SYNCHRONOUS, OURS, TWIN,
    )
} | {
    DPRO_GRADIENT: Contender("dpro_sm", "stand_in=average,forecast=best", kind="forecasts"),
    DPRO_SHARES: Contender("dpro_sm", "reading=shares,forecast=best", kind="forecasts"),
}  # fmt: skip
"""Those that train until a loss is reached. DPro-SM forecasts by follow-the-best here instead of its LSTM, which
forecasts some kinds of delays better and takes several times as long (notebook 10), and the average of a worker's last
gradients stands in instead of an LSTM's. Counting stale gradients less is left out: it takes rates of its own, several
times as large."""

OF_FIGURE_4: Mapping[str, Contender] = {
    name: LEARNERS[name] for name in (WAIT, DROP_ONE, DPRO_GRADIENT, DPRO_SHARES, NEVER_WAIT, OURS)
}
"""Those that train with several slow nodes."""

ROUND_BY_ROUND: Mapping[str, Contender] = {
    name: CONTENDERS[name] for name in (WAIT, DROP_ONE, DROP_QUARTER, BY_LAST_VALUE, "anytime")
} | {DPRO_GRADIENT: Contender("dpro_sm", "stand_in=average,forecast=last", kind="forecasts")}
"""Those that ten thousand workers are simulated with: all workers of a round at once. Shares by last value are those of
DPro-SM with a forecaster that is quick enough."""

ADVISED: Mapping[str, Contender] = {
    name: one
    for name, one in CONTENDERS.items()
    if one.kind != "never waits" and name not in (OURS, TWIN) and not one.standby
}
"""Those that a replay chooses among: all whose updates use the gradients of their own parameters alone, for of the
others seconds per image say too little. Of a node that stands by, a recording holds nothing."""

RIVALS: Mapping[str, Contender] = {name: LEARNERS[name] for name in (WAIT, NEVER_WAIT, OURS)}
"""Ours, what it is measured by, and asynchronous training, with momentum and a server whose messages take twice as
long."""

LEFT_OUT, NOTHING_STANDS_IN, ZERO_STANDS_IN = "left out, rescaled", "nothing stands in", "a zero stands in"
AVERAGE_STANDS_IN = "an average stands in"
LSTM_GRADIENT, LSTM_WEIGHTS = "an LSTM stands in", "an LSTM's weights stand in"

STAND_INS: Mapping[str, Contender] = {
    WAIT: Contender("wait_for_all"),
    LEFT_OUT: Contender("k_sync"),
    **{
        f"{name} stands in": Contender("dpro_sm", f"when=detected,stand_in={kind},forecast=last")
        for name, kind in (
            ("nothing", "nothing"), ("a zero", "zero"), ("the last gradient", "last"), ("an average", "average"),
            ("an LSTM", "lstm"),
        )
    },
    LSTM_WEIGHTS: Contender("dpro_sm", "reading=weights,when=detected,forecast=last"),
}  # fmt: skip
"""What is done about the gradient of a worker that is not waited for. Who is late is detected, not forecast: so nobody
waits for a node that never comes, and all that differs is what stands in for it. A zero that has the weight of the
missing gradient is a control: all that it does is to shorten the step, as leaving it out does here, where the rate
follows the images of an update."""

REAL: Mapping[str, Contender] = {
    name: CONTENDERS[name] for name in (WAIT, DROP_ONE, DETECTED, BY_LAST_VALUE, NEVER_WAIT)
} | {OURS: Contender("deadline", "forecast=last,noise=32")}
"""Those that run on real ranks beside the simulator. Ours is told the noise scale, which the simulator, whose workers
compute nothing there, could not measure."""

SHUFFLED, STAY = "shuffled", "stay"
"""Where images are: in one order of all in every epoch, or with the workers."""

WAYS: Mapping[str, str] = {name: one.kind for known in (CONTENDERS, LEARNERS) for name, one in known.items()}
"""How a policy deals with stragglers, by its name."""

NEVER_WAITING = tuple(name for name, way in WAYS.items() if way == "never waits")
DPRO_READINGS = (DPRO_GRADIENT, DPRO_DETECTED, DPRO_SHARES, DPRO_STANDBY)
"""What DPro-SM's text may mean."""

_FORECASTERS = {"best": "follow the best", "last": "the last value"}
_MADE_UP = {"average": "an average"}


def without_lstm(known: Mapping[str, Contender], *names: str) -> str:
    """What takes the place of DPro-SM's LSTM in these of its readings; "" where nothing does."""
    said = []
    for name in names:
        options = dict(part.split("=") for part in known[name].options.split(",") if part)
        parts = [f"{_FORECASTERS[options['forecast']]} forecasts"] if options.get("forecast") in _FORECASTERS else []
        parts += [f"{_MADE_UP[options['stand_in']]} stands in"] if options.get("stand_in") in _MADE_UP else []
        said += [f"{' and '.join(parts)} ({name})"] if parts else []
    return f"in place of the LSTM, {', '.join(said)}" if said else ""
