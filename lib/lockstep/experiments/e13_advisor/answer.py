"""The answer to notebook 13's title: what several workers gained here, and how far the advice was off."""

from __future__ import annotations

from lockstep.advisor.errors import AS_CALIBRATED
from lockstep.analysis.confidence import AnalysisError
from lockstep.analysis.sentences import counted, finding, interval_text, measure_of, sentence, settle_each, times
from lockstep.analysis.statistics import ratio_with_interval
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NotNow
from lockstep.experiments.e13_advisor.checking import judged
from lockstep.experiments.e13_advisor.grid import CALIBRATION, SHARED
from lockstep.experiments.e13_advisor.picks import allowed_loss, picks
from lockstep.experiments.e13_advisor.tables import held_out_errors, model_name, quantile_of


@finding
def answer(stored: Stored) -> str:
    """Gains of several workers over one, the error of predictions, and how often the advice was right."""
    parts = {"What workers gain": _gains, "How far off the advice is": _errors}
    return " ".join(settle_each(lambda name: parts[name](stored), parts))


def _gains(stored: Stored) -> str:
    """The least and the most that workers with a core each gain, of all models."""
    found, several = [], set[int]()
    for use_case in stored.records.loc[stored.records["experiment"] == CALIBRATION, "use_case"].unique():
        cell = {"experiment": CALIBRATION, "use_case": use_case, "variant": "a"}
        own = stored.records[(stored.records["use_case"] == use_case) & (stored.records["experiment"] == CALIBRATION)]
        above = cell | {"strategy": SHARED}
        batches = own.loc[own["strategy"] == SHARED, "per_worker_batch_size"].unique()
        base = cell | {"strategy": "sequential", "global_batch_size": list(batches)}
        try:
            found.append((ratio_with_interval(stored.records, above, base, "images_per_second"), str(use_case)))
            several |= {int(count) for count in own.loc[own["strategy"] == SHARED, "workers"].unique()}
        except AnalysisError:
            continue
    if not found:
        raise NotNow("", "no round holds two workers beside one")
    who = " or ".join(counted(count, "worker") for count in sorted(several))
    workers = f"{who} with a core each and one copy of the parameters"
    least, most = (pick(found, key=lambda each: each[0].value) for pick in (min, max))
    if len(found) == 1:
        gain = times(least[0], "as fast as one")
        model = model_name(least[1])
        return sentence(f"{workers} train {model} {gain}")
    ends = [f"{ratio.value:.3g} times {interval_text(ratio)} ({model_name(of)})" for ratio, of in (least, most)]
    train = f"{workers} train {counted(len(found), 'model')}"
    return sentence(f"{train} {ends[0]} to {ends[1]} as fast as one does")


def _errors(stored: Stored) -> str:
    errors = held_out_errors(stored)
    far = measure_of(quantile_of(errors, 0.5), "%")
    table, own = judged(stored), picks(stored)
    table = table[table["kind"] != AS_CALIBRATED]
    ranges = f"{int(table['holds'].sum())} of {len(table)} steps lie in their 90 % range"
    decided = own[own["decided"]] if len(own) else own
    right = ""
    if len(decided):
        good = f"{int(decided['good'].sum())} of {len(decided)}"
        limit = f"{100 * allowed_loss(stored):.0f} %"
        advised = f"{int(decided['advised_good'].sum())}"
        right = f", and the way predicted quickest is as fast as the fastest, up to {limit}, in {good} choices, the "
        right += f"recommended one, the simplest that can't be told from it, in {advised}"
    cells = counted(len(errors), "cell")
    predicted = f"steps of {cells} that nothing was calibrated with are predicted {far} off in the median"
    return sentence(f"{predicted}; {ranges}{right}")
