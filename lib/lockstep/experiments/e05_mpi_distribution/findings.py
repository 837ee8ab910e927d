"""What each figure of notebook 05 shows, in a sentence or two computed from its records."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pandas as pd

from lockstep.analysis.noise import aa_noise
from lockstep.analysis.one_session import by_short_name
from lockstep.analysis.sentences import (
    Finding,
    counted,
    estimate_in,
    faster,
    finding,
    interval_text,
    listed,
    measure_of,
    network_name,
    require_rounds,
    sentence,
    times,
    way_name,
)
from lockstep.analysis.statistics import (
    BASELINE,
    AnalysisError,
    interval_of,
    ratio_or_reason,
    ratio_with_interval,
    select,
)
from lockstep.analysis.stored import Stored
from lockstep.analysis.tables import distributed_speedup_table, sessions_in, trace_table
from lockstep.analysis.verdicts import NotNow
from lockstep.engine.units import bits_text, bytes_text
from lockstep.experiments.e05_mpi_distribution.tables import RANKING_BASE, link_table, network_table, ranking_table
from lockstep.predict.link_model import exchange_seconds, message_table, wire_table

WAYS: Mapping[str, str] = {
    "host_threads": "threads of one process per host",
    "mpi_allreduce": "processes that send messages",
    "mpi_shared_memory": "processes that share memory",
}
"""Local strategies of the headline, as a sentence calls them."""
ALLREDUCE = "allreduce"
_GRADIENTS: Mapping[str, str] = {ALLREDUCE: "uncompressed gradients"}
_FASTEST = 1e10  # bit/s, of the emulated links
_PAPER_KIB = 35  # single-to-multi §4.2


@finding
def ranking(stored: Stored) -> str:
    """Local strategies against each other on one host and on several, and whether a difference returns."""
    table = ranking_table(stored.records)
    rivals = table[table["strategy"] != RANKING_BASE] if len(table) else table
    if rivals.empty:
        return "No local strategy was compared with another one."
    noise, thin = aa_noise(stored.records), {}
    parts: list[str] = []
    for row in rivals.sort_values("hosts", kind="stable").to_dict("records"):
        name = WAYS[row["strategy"]]
        try:
            told = faster(estimate_in(row, "ratio"), noise, name, WAYS[RANKING_BASE], sessions_in(row, "ratio"))
            network = f"training {network_name(row['use_case'])}, " if not parts else ""
            parts.append(sentence(f"{network}on {_hosts(row['hosts'])}, {told}"))
        except NotNow as error:
            thin[f"{name} on {_hosts(row['hosts'])}"] = str(error)
    parts += [sentence(f"{name}: not known yet ({why})") for name, why in thin.items()]
    return " ".join([*parts, _returning(rivals)])


def _hosts(count: float) -> str:
    return counted(int(count), "host")


def _returning(rivals: pd.DataFrame) -> str:
    """Whether what differs on the fewest hosts differs the same way on the most."""
    few, many = rivals["hosts"].min(), rivals["hosts"].max()
    if few == many:
        return sentence(f"only {_hosts(few)} was measured, so nothing can return on more")
    differ = rivals[rivals["difference"]]
    here, there = (
        {row["strategy"]: row["ratio"] > 1 for row in differ[differ["hosts"] == count].to_dict("records")}
        for count in (few, many)
    )
    if not here:
        stays = f"so whether a ranking there holds on {_hosts(many)} stays open"
        return sentence(f"no difference beyond noise shows on {_hosts(few)}, {stays}")
    again = sum(there.get(name) is side for name, side in here.items())
    if len(here) == 1:
        pair = f"{WAYS[next(iter(here))]} and {WAYS[RANKING_BASE]}"
        shows = "shows" if again else "does not show"
        return sentence(f"the difference between {pair} on {_hosts(few)} {shows} on {_hosts(many)}")
    which = f"of {counted(len(here), 'difference')} on {_hosts(few)}"
    return sentence(f"{which}, {again or 'none'} {'shows' if again == 1 else 'show'} on {_hosts(many)}")


@finding
def weak(stored: Stored) -> str:
    """Every sync over one core, the batch growing with the workers."""
    return _gains(stored, "weak", "weak scaling")


@finding
def strong(stored: Stored) -> str:
    """Every sync over one core, with one batch that is shared."""
    return _gains(stored, "strong", "strong scaling")


def _gains(stored: Stored, experiment: str, what: str) -> str:
    table = distributed_speedup_table(stored.records, experiment)
    if len(table):
        table = table[(table["device"] == "cpu") & (table["strategy"] != "sequential") & (table["variant"] == "a")]
    known = table[table["speedup"].notna()] if len(table) else table
    if known.empty:
        how = f"'{experiment}_syncs={{Pneumonia: [allreduce, parameter_server]}}'"
        return sentence(f"no cell of {what} was measured; `lockstep run 05 -p {how}` measures some")
    parts, thin, workers = [], 0, ""
    for use_case, rows in known.groupby("use_case", sort=False):
        most = rows[rows["workers"] == rows["workers"].max()]
        gains = [(row, estimate_in(row, "speedup")) for row in most.to_dict("records")]
        thin += sum(gain.open for _, gain in gains)
        told = (
            f"{gain.value:.3g} with {way_name(row['strategy'])} {interval_text(gain)}{sessions_in(row, 'speedup')}"
            + (" (may be no gain)" if not gain.open and gain.low <= 1 <= gain.high else "")
            for row, gain in gains
        )
        network, before = network_name(str(use_case)), workers
        workers = counted(int(most["workers"].iloc[0]), "worker")
        begin = f"{workers} train {network} at these multiples of one core's speed:"
        parts.append(sentence(f"{f'for {network} they are' if workers == before else begin} {listed(told)}"))
    if thin:
        parts.append("What has no interval yet, for want of rounds, cannot be ranked.")
    return " ".join(parts)


@finding
def messages(stored: Stored) -> str:
    """The largest message: processes against MPI on one host, and the link model against the wire."""
    table = message_table(stored.records, "collective")
    parts = []
    if len(table):
        try:
            parts.append(_on_one_host(stored.records, int(table["bytes"].max())))
        except (NotNow, AnalysisError) as error:
            parts.append(f"How gloo's all-reduce stands to MPI's on one host is not known yet ({error}).")
    wire = wire_table(stored.records)
    own = wire[(wire["strategy"] == "mpi_allreduce") & wire["ratio"].notna()] if len(wire) else wire
    if len(own):
        row = own.loc[own["bytes"].idxmax()].to_dict()
        ratio = estimate_in(row, "ratio")
        require_rounds(ratio)
        judged = "as long as the model says, as far as the interval tells"
        if not ratio.low <= 1 <= ratio.high:
            judged = "longer than the model says" if ratio.value > 1 else "less time than the model says"
        parts.append(sentence(
            f"over the emulated link, an all-reduce of {bytes_text(row['bytes'])} takes {judged}: "
            f"{times(ratio, 'the time that ping-pong predicts')}"
        ))  # fmt: skip
    return " ".join(parts) or "No exchange without a model was measured."


def _on_one_host(records: pd.DataFrame, size: int) -> str:
    timed = exchange_seconds(records)
    shared = {"experiment": "collective", "message_bytes": size, "variant": "a"}
    gloo, mpi = ({**shared, "strategy": name} for name in ("processes_allreduce", "mpi_allreduce"))
    ratio = ratio_with_interval(timed, gloo, mpi, "seconds")
    require_rounds(ratio)
    what = f"on one host, gloo's all-reduce of {bytes_text(size)}"
    if ratio.low <= 1 <= ratio.high:
        return sentence(f"{what} cannot be told apart from MPI's ({times(ratio, 'as long')})")
    as_long = times(ratio, "as long as MPI's")
    return sentence(f"{what} takes {as_long}")


@finding
def links(stored: Stored) -> str:
    """From which rate on two hosts pay by the bytes counted, and what AlexNet gains."""
    table = link_table(stored.records)
    known = table[table["speedup"].notna()] if len(table) else table
    if known.empty:
        return "No training over emulated links was measured."
    text, link = alexnet_over_links(stored), bits_text(_FASTEST)
    few = [sentence(f"over {link}, {text} one core's speed")] if text else []
    paid = [sentence(f"{pays}, by a model from counted bytes")] if (pays := pays_from(stored)) else []
    if pays := pays_from(stored, compressed=True):
        paid.append(sentence(f"by the same model they are faster {pays}"))
    return " ".join([*paid, *few]) or "From which link on the hosts pay is not known yet."


def alexnet_over_links(stored: Stored) -> str:
    """AlexNet on the same hosts over 10 Gbit/s, with the few images per worker that the time line has, over one core;
    "" where that is not measured."""
    shared = {"experiment": "timeline", "use_case": "SimpleBig", "variant": "a"}
    hosts = {**shared, "strategy": "mpi_allreduce", "link_bits_per_second": _FASTEST, "workers": 2}
    records = stored.shown.records
    ratio, _ = ratio_or_reason(records, hosts, {**shared, **BASELINE}, "images_per_second")
    if ratio is None:
        return ""
    batch = int(select(records, hosts)["per_worker_batch_size"].iloc[0])
    return f"AlexNet with {counted(batch, 'image')} per worker: {ratio} times"


def pays_from(stored: Stored, compressed: bool = False) -> str:
    """From which rate on the hosts of a `link_table` are faster than one core with uncompressed gradients, by
    processor, as a clause; `compressed`: with the others. "" where none is known."""
    rates: dict[str, dict[str, float]] = {}
    for processor, records in by_short_name(stored, stored.of("links")).items():
        table = link_table(records)
        for row in table.drop_duplicates("strategy").to_dict("records") if len(table) else ():
            if not math.isnan(rate := row["pays_from_bits_per_second"]):
                rates.setdefault(row["strategy"], {})[processor] = rate
    several = len({who for own in rates.values() for who in own}) > 1
    told = []
    for name, own in rates.items():
        at = {who: "at no rate" if rate == math.inf else f"from {bits_text(rate)}" for who, rate in own.items()}
        where = [text + (f" on {who}" if several else " on" * text.startswith("from")) for who, text in at.items()]
        if (name != ALLREDUCE) == compressed:
            told.append(f"{' and '.join(where)} with {sent(name)}")
    if not told or compressed:
        return listed(told)
    known = link_table(stored.records)
    hosts, network = counted(int(known["hosts"].min()), "host"), network_name(str(known["use_case"].iloc[0]))
    return f"{hosts} train {network} faster than one core {told[0]}"


def sent(strategy: str) -> str:
    """What a way of exchanging sends, as a sentence calls it."""
    return _GRADIENTS.get(strategy, way_name(strategy))


@finding
def network(stored: Stored) -> str:
    """The most and the fewest bytes that a step puts on the busiest link, beside the paper's peak."""
    table = network_table(stored.records)
    if table.empty:
        return "No bytes were counted on a link."
    ends = [table.loc[table["link_bytes_busiest"].idxmax()], table.loc[table["link_bytes_busiest"].idxmin()]]
    told = [
        f"{bytes_text(row['link_bytes_busiest'])} ({network_name(row['use_case'])}, {way_name(row['strategy'])})"
        for row in (ends if len(table) > 1 else ends[:1])
    ]
    over = ends[0]["link_bytes_busiest"] / (_PAPER_KIB * 1024)
    return sentence(
        f"a step puts from {' down to '.join(told)} on the busiest link: up to {over:,.0f} "
        f"times the paper's peak of {_PAPER_KIB} KiB, which names no unit of time"
    )


@finding
def resources(stored: Stored) -> str:
    """Mean CPU use of the ranks while they train over the link."""
    traced = stored.table("resources")
    table = trace_table(traced[traced["experiment"] == "timeline"]) if len(traced) else traced
    if table.empty:
        return "No resources were sampled in these records."
    parts = []
    for (use_case, strategy), own in table.groupby(["use_case", "strategy"], sort=False):
        what = f"while two hosts train {network_name(str(use_case))} by {way_name(str(strategy))}"
        busy = interval_of(own["cpu_percent_mean"].dropna())
        try:
            require_rounds(busy)
        except NotNow:
            few = counted(busy.rounds, "minute")
            parts.append(sentence(f"{what}, {few} of it was sampled: mean CPU use {busy.value:.0f} % of one core, "
                                  "without an interval"))  # fmt: skip
            continue
        parts.append(sentence(f"{what}, their ranks keep {measure_of(busy, '% of one core')} busy"))
    return " ".join(parts)


FINDINGS: Mapping[str, Finding] = {
    "ranking": ranking,
    "weak": weak,
    "strong": strong,
    "messages": messages,
    "links": links,
    "network": network,
    "resources": resources,
}
