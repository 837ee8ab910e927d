"""The answer to the notebook's title: how the LSTM's error stands to simple rivals', and whom it sees coming."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from lockstep.analysis.confidence import AnalysisError, Estimate
from lockstep.analysis.sentences import counted, finding, measure_of, require_rounds, sentence, times
from lockstep.analysis.statistics import interval_of
from lockstep.analysis.stored import Stored
from lockstep.experiments.e10_straggler_forecasts.forecasters import BASE, BEST, LSTM, MEMBERS, STATES
from lockstep.experiments.e10_straggler_forecasts.grid import KINDS
from lockstep.experiments.e10_straggler_forecasts.ratios import error_ratio, known_onsets, over_kinds, share_of

BEST_SO_FAR = f"whichever of {counted(len(MEMBERS), 'simple forecaster')} erred least lately"


def error_over_kinds(stored: Stored, name: str, rival: str) -> Estimate:
    """A forecaster's error over a rival's, the mean over all kinds of delays. Raises NotNow for too few seeds."""
    found = interval_of(over_kinds(stored, partial(error_ratio, stored, name=name, over=rival, told=True)))
    require_rounds(found)
    return found


def but_for_one(stored: Stored, name: str, rival: str) -> tuple[str, Estimate, Estimate]:
    """The kind of delays that is farthest from the others, and the mean over these: it may have decided it alone.
    That kind, what it has alone, and what the others have."""
    logs = np.log(pd.DataFrame({kind: error_ratio(stored, kind, name, rival, told=True) for kind in KINDS}).dropna())
    far = str((logs.mean() - logs.mean().median()).abs().idxmax())
    rest, own = (interval_of(np.exp(each)) for each in (logs.drop(columns=far).mean(axis=1), logs[far]))
    return far, own, rest


def errs(ratio: Estimate, rival: str) -> str:
    """How an error stands to a rival's, never more than its interval allows."""
    if ratio.low <= 1 <= ratio.high:
        return f"cannot be told apart from {rival} ({times(ratio, 'its error')})"
    return f"has {times(ratio, f'the error of {rival}')}"


@finding
def answer(stored: Stored) -> str:
    """How the LSTM's error stands to those of two simple rivals, and how many stragglers it sees coming."""
    last, best = (error_over_kinds(stored, LSTM, rival) for rival in (BASE, BEST))
    far, own, rest = but_for_one(stored, LSTM, BEST)
    others = counted(len(KINDS) - 1, "other kind")
    alone = f"on {far} alone{' (told the balance)' * (far in STATES)}"
    who = "in simulation, after 60 steps online, an LSTM like the paper's"
    text = (
        f"over {counted(len(KINDS), 'kind')} of delays it {errs(last, 'the last value')}, and "
        f"{errs(best, BEST_SO_FAR)}; {alone} {own.value:.3g} times that error, "
        f"over the {others} {rest.value:.3g} times {rest.interval}"
    )
    return f"{sentence(seen_coming(stored, LSTM, who))} {sentence(text)}"


def seen_coming(stored: Stored, name: str, who: str) -> str:
    """Which share of new stragglers is named beforehand, over all kinds and on the kind with the highest; told the
    state of the system, as hollow marks of the figure are."""
    known = _known_by_kind(stored, name)
    most = max(known, key=lambda kind: known[kind].value)
    mean = share_of(over_kinds(stored, partial(known_onsets, stored, name=name, told=True), logarithmic=False))
    share, highest = (measure_of(each.times(100), "%") for each in (mean, known[most]))
    told = ", told the balance" if most in STATES else ""
    under = "periodic delays" if most == "periodic" else most
    return (
        f"{who} foresees {share} of new stragglers a step before, mean over {counted(len(known), 'kind')}; "
        f"it foresees most under {under}{told}: {highest}"
    )


def _known_by_kind(stored: Stored, name: str) -> dict[str, Estimate]:
    """Kinds with stragglers that begin, and which share of these is named beforehand. Raises NotNow for too few
    seeds."""
    known = {}
    for kind in KINDS:
        try:
            known[kind] = share_of(known_onsets(stored, kind, name, told=True))
        except AnalysisError:
            continue
        require_rounds(known[kind])
    if not known:
        raise AnalysisError("no worker became a straggler under any kind of delays")
    return known
