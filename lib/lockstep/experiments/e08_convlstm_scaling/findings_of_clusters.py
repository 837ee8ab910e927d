"""What notebook 08's cost model says of clusters, in sentences computed from its records, and how it errs over a link.

Modelled numbers say so, and have no interval of their own.
"""

from __future__ import annotations

import pandas as pd

from lockstep.analysis.one_session import on_one_processor
from lockstep.analysis.sentences import counted, finding, in_words, listed, measure_of, sentence
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NotNow
from lockstep.experiments.e08_convlstm_scaling.drawings import network_title
from lockstep.experiments.e08_convlstm_scaling.forecasts import Cluster, cluster_forecast, cluster_of
from lockstep.experiments.e08_convlstm_scaling.tables import checked_model
from lockstep.predict.cost_check import held_out_error


def the_network(name: object) -> str:
    """What sentences call a network: the ConvLSTM."""
    return f"the {network_title(str(name))}"


def link_error(stored: Stored, strategy: str = "") -> str:
    """To which side and by how much the model errs on cells of emulated hosts (of one strategy), the only ones with a
    link, which is what a forecast for a cluster adds; "" where there are none."""
    own = _over_link(checked_model(stored))
    own = own[own["strategy"] == strategy] if strategy and len(own) else own
    if own.empty:
        return ""
    off = dict.fromkeys(f"{100 * share:.0f}" for share in (own["error"].min(), own["error"].max()))
    such, by = "such " if strategy else "", f"by {' to '.join(off)} %"
    for side, shown in (("short", own["high"] < 1), ("long", own["low"] > 1)):
        if shown.all():
            return f"on emulated hosts it predicted every {such}step too {side}, {by}"
    return f"on emulated hosts its predictions of {'such ' if strategy else ''}a step are off {by}"


def _over_link(checked: pd.DataFrame) -> pd.DataFrame:
    """Of a `check_table` the held-out cells with a link between their hosts and a prediction."""
    if checked.empty:
        return checked
    return checked[(checked["part"] == "held out") & (checked["hosts"] > 1) & checked["ratio"].notna()]


@finding
def cluster(stored: Stored) -> str:
    """What the cost model expects at most of nodes that share one batch and of nodes with a batch each, by the way of
    exchanging."""
    table, cluster = cluster_forecast(stored), cluster_of(stored)
    if table.empty:
        raise NotNow("", "the cost model was not calibrated: too few cells")
    (shared, each), *others = (
        [_peak(own[own["scaling"] == scaling]) for scaling in ("strong", "weak")]
        for _, own in table.groupby("way", sort=False)
    )
    beyond = _beyond(table[table["scaling"] == "weak"], cluster)
    best = {str(own.loc[own["modelled_speedup"].idxmax(), "network"]) for _, own in table.groupby(["way", "scaling"])}
    whose = f" of {the_network(best.pop())}" if len(best) == 1 else ""
    told = [
        f"over the assumed link the cost model expects{whose} at most {shared} with one batch of {cluster.batch} "
        f"images that all nodes share; {each} with {cluster.per_worker} for each worker{beyond}",
        *(f"it expects at most {shared} (one batch) and {each} (a batch each)" for shared, each in others),
        link_error(stored),
    ]
    return " ".join(sentence(text) for text in told if text)


def _peak(rows: pd.DataFrame) -> str:
    best = rows.loc[rows["modelled_speedup"].idxmax()]
    return f"{float(f'{best.modelled_speedup:.2g}'):g} times on {best['nodes']} nodes by {best['way']}"


def _beyond(rows: pd.DataFrame, cluster: Cluster) -> str:
    """That a batch for each worker makes more than an epoch, where the peak of these rows has one."""
    whole = int(rows.loc[rows["modelled_speedup"].idxmax(), "global_batch_size"])
    more = whole > cluster.epoch_images
    return f" (a batch of {whole:,} where an epoch has {cluster.epoch_images:,})" if more else ""


def more_nodes(stored: Stored) -> str:
    """The largest speedup of each network that the cost model expects of any number of nodes, for the first screen."""
    table = cluster_forecast(stored)
    if table.empty:
        return "What more nodes would gain is not known yet: the cost model was not calibrated, for too few cells."
    strong, cluster = table[table["scaling"] == "strong"], cluster_of(stored)
    most = listed(f"{_peak(own)} for {the_network(network)}" for network, own in strong.groupby("network", sort=False))
    asked = f"over an assumed link ({cluster.link}) and with one batch of {cluster.batch} shared by all nodes"
    told = "; ".join(filter(None, (f"{asked}, it expects at most {most}", link_error(stored))))
    return f"For more nodes there is a cost model, not a measurement: {told}."


@finding
def model(stored: Stored) -> str:
    """The model's mean error on cells that it never saw, to which side it errs, and the same of those with a link."""
    records, processor = on_one_processor(stored)
    found, cells, _ = held_out_error(records)
    told = f"fitted and checked on {processor}, the cost model errs" if processor else "the cost model errs"
    table = checked_model(stored)
    if table.empty:
        raise NotNow("", "the cost model was not calibrated: too few cells")
    held = table[(table["part"] == "held out") & table["low"].notna()]
    fast, slow = int((held["high"] < 1).sum()), int((held["low"] > 1).sum())
    short, long = (in_words(number) if number else "none" for number in (fast, slow))
    whole = sentence(
        f"{told} by {measure_of(found.times(100), '%')} on average on {cells} cells that "
        f"it was not fitted to; of the {len(held)} with an interval, it promises too short a step in {short} and too "
        f"long a step in {long}"
    )
    linked = _over_link(table)
    if linked.empty:
        return f"{whole} None of these cells has a link."
    many = f"only {counted(len(linked), 'cell')} {'has' if len(linked) == 1 else 'have'} a link"
    middle = f"median error {100 * linked['error'].median():.3g} %"
    return f"{whole} {sentence(f'{many} ({middle}): {link_error(stored)}')}"
