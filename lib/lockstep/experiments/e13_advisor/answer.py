"""The answer to notebook 13's title: how many workers are best, what several gained, how far the advice was off."""

from __future__ import annotations

import pandas as pd

from lockstep.analysis.confidence import AnalysisError
from lockstep.analysis.one_session import on_one_processor
from lockstep.analysis.sentences import counted, finding, listed, measure_of, sentence, settle_each
from lockstep.analysis.statistics import ratio_with_interval
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NotNow
from lockstep.experiments.e13_advisor.grid import CALIBRATION, SHARED
from lockstep.experiments.e13_advisor.picks import advised_costs, allowed_loss, picks
from lockstep.experiments.e13_advisor.tables import held_out_errors, model_name, quantile_of


@finding
def answer(stored: Stored) -> str:
    """How many workers the fastest way has, gains over one, the error of predictions, how often advice was right."""
    parts = {"How many workers are best": _how_many, "What workers gain": _gains, "How far off the advice is": _errors}
    shown = on_one_processor(stored)[1]
    remark = [sentence(f"numbers are of {shown}, on which most was measured")] if shown else []
    return " ".join([*settle_each(lambda name: parts[name](stored), parts), *remark])


def _how_many(stored: Stored) -> str:
    """In how many choices of a model and a batch the fastest way is decided, and with how many workers."""
    table = picks(stored)
    if table.empty:
        raise NotNow("", "no two ways to train one global batch were measured")
    best = [int(name.rpartition(" x ")[2]) if " x " in name else 1 for name in table[table["decided"]]["best"]]
    choices = f"{counted(len(table), 'choice')}, each of a model and a global batch,"
    if not best:
        undecided = "can the fastest way be told from all others, so how many workers are best is undecided"
        return sentence(f"in none of {choices} {undecided}{_more_than_a_core(table)}")
    many = [f"{counted(count, 'worker')} in {best.count(count)}" for count in sorted(set(best))]
    return sentence(f"of {choices} the fastest way is decided in {len(best)}: {listed(many)}")


def _more_than_a_core(table: pd.DataFrame) -> str:
    """In how many choices a worker on one core is slower than another way, whichever is the fastest; "" for none."""
    offered, slower = (sum("sequential" in names for names in table[column]) for column in ("names", "slower"))
    return f"; one core is slower than another way in {slower} of the {offered} that offer it" if slower else ""


def _gains(stored: Stored) -> str:
    """What workers with a core each gain, of every model, with the batch per worker as it is."""
    found, several = [], set[int]()
    records = on_one_processor(stored)[0]
    calibrated = records[records["experiment"] == CALIBRATION]
    for use_case in calibrated["use_case"].unique():
        cell = {"experiment": CALIBRATION, "use_case": use_case, "variant": "a"}
        own = calibrated[calibrated["use_case"] == use_case]
        above = cell | {"strategy": SHARED}
        batches = own.loc[own["strategy"] == SHARED, "per_worker_batch_size"].unique()
        base = cell | {"strategy": "sequential", "global_batch_size": list(batches)}
        try:
            found.append((ratio_with_interval(records, above, base, "images_per_second"), str(use_case)))
            several |= {int(count) for count in own.loc[own["strategy"] == SHARED, "workers"].unique()}
        except AnalysisError:
            continue
    if not found:
        raise NotNow("", "no round holds two workers beside one")
    who = " or ".join(counted(count, "worker") for count in sorted(several))
    workers = f"{who} with a core each, by shared memory,"
    found.sort(key=lambda each: each[0].value)
    sure = [f"{model_name(of)} {ratio}" for ratio, of in found if not ratio.low <= 1 <= ratio.high]
    open_ = [f"{model_name(of)} ({ratio})" for ratio, of in found if ratio.low <= 1 <= ratio.high]
    undecided = f"undecided for {listed(open_)}" if open_ else ""
    if not sure:
        return sentence(f"for {listed(open_)} the gain of {workers} is undecided")
    gained = f"{workers} train at these multiples of one worker's samples per second, at the same batch per worker:"
    return sentence("; ".join(filter(None, (f"{gained} {listed(sure)}", undecided))))


def _errors(stored: Stored) -> str:
    errors = held_out_errors(stored)
    far = measure_of(quantile_of(errors, 0.5), "%")
    own = picks(stored)
    decided = own[own["decided"]] if len(own) else own
    right = advised_costs(stored) if len(own) else ""
    if len(decided):
        good = f"{int(decided['good'].sum())} of {len(decided)}"
        limit = f"{100 * allowed_loss(stored):.0f} %"
        advised = f"{int(decided['advised_good'].sum())}"
        right = f", and the way predicted quickest is as fast as the fastest, up to {limit}, in {good} choices, the "
        right += f"recommended one, the simplest that can't be told from it, in {advised}"
    cells = counted(len(errors), "cell")
    predicted = f"steps of {cells} that nothing was calibrated with are predicted {far} off in the median"
    return sentence(f"{predicted}{right}")
