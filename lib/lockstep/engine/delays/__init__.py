"""Delays that can be repeated: slept by real ranks, added in virtual time by a simulator, and the same for both. Those
of messages (`link`) are for the simulator alone.

    delays = make_delays("markov:slow=3,enter=0.01,leave=0.04", workers=8, seed=0)
    delays.end(worker=2, task=17, start=4.2, work_seconds=0.1)          # 4.3, or later

A text names a kind and its options; `canonical` writes it in one way, so that equal delays have equal texts. A new kind
is a class here and a name in `KINDS`.
"""

from __future__ import annotations

from lockstep.engine.delays.base import Delays, NoDelays
from lockstep.engine.delays.credits import Credits
from lockstep.engine.delays.pauses import Bimodal, Exponential, Pareto
from lockstep.engine.delays.states import Decoding, Drift, Groups, Link, Markov, Periodic
from lockstep.engine.delays.switches import BadNode, Gone
from lockstep.engine.delays.trace_delays import TraceDelays
from lockstep.engine.option_text import named_text, parse_named

_ALL: tuple[type[Delays], ...] = (
    NoDelays, Exponential, Pareto, Bimodal, Markov, Periodic, Drift, BadNode, Groups, Credits, Decoding, Link,
    TraceDelays, Gone,
)  # fmt: skip
KINDS: dict[str, type[Delays]] = {kind.name: kind for kind in _ALL}
"""By the name in the text of `Job.delays`."""

_OPTIONS = {name: kind.options_kind for name, kind in KINDS.items()}


def make_delays(text: str, workers: int, seed: int) -> Delays:
    """The delays that `text` describes, for `workers` workers: `none`, `pareto`, `markov:slow=3,enter=0.01,leave=0.04`.

    Raises JobError, which names the option, its value and what is allowed; for a trace also what is wrong with it.
    """
    name, options = parse_named(text, _OPTIONS, "delays")
    return KINDS[name](options, workers, seed)


def canonical(text: str) -> str:
    """The same delays in canonical order of the options, without those that have their defaults. Raises JobError."""
    return named_text(*parse_named(text, _OPTIONS, "delays"))


__all__ = ["KINDS", "Delays", "canonical", "make_delays"]
