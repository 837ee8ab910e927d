"""The answer to notebook 05's title: what pays over MPI, from which link on, and from which batch on the network is no
bottleneck."""

from __future__ import annotations

import pandas as pd

from lockstep.analysis.confidence import MIN_ROUNDS, AnalysisError, Estimate
from lockstep.analysis.noise import aa_noise
from lockstep.analysis.one_session import by_short_name
from lockstep.analysis.sentences import (
    counted,
    estimate_in,
    faster,
    finding,
    listed,
    measure_of,
    network_name,
    sentence,
)
from lockstep.analysis.statistics import ratio_with_interval, select
from lockstep.analysis.stored import Stored
from lockstep.analysis.tables import sessions_in
from lockstep.analysis.verdicts import NotNow, cell
from lockstep.engine.units import bits_text
from lockstep.experiments.e05_mpi_distribution import regimes
from lockstep.experiments.e05_mpi_distribution.accuracy import accuracy_table
from lockstep.experiments.e05_mpi_distribution.findings import ALLREDUCE, pays_from, sent
from lockstep.experiments.e05_mpi_distribution.tables import link_table
from lockstep.experiments.e05_mpi_distribution.verdicts import OVER_MPI, WITHOUT_MPI

_USE_CASE, _SMALL = "SimpleBig", "Pneumonia"


@finding
def answer(stored: Stored) -> str:
    """What two hosts gain, from which link on and from which batch on the wire is a tenth, and what MPI costs beside
    processes without it."""
    parts, missing = [], []
    for say in (_hosts_gain, _network_decides, _mpi_costs):
        try:
            parts.append(say(stored))
        except (NotNow, AnalysisError) as error:
            missing.append(str(error))
    if not parts:
        raise NotNow("", "; ".join(dict.fromkeys(missing)))
    return " ".join(parts)


def _hosts_gain(stored: Stored) -> str:
    """Every way of exchanging at every rate, all on one processor, so that the rates can be compared; and what
    accuracy a way loses."""
    tables = {name: _known(own) for name, own in by_short_name(stored, stored.of("links")).items()}
    if not any(map(len, tables.values())):
        raise NotNow("", "no training over emulated links was measured")
    processor = max(tables, key=lambda name: _fullness(tables[name]))
    table = tables[processor]
    if table["low"].isna().all():
        raise NotNow("", f"no way of exchanging over the links has {MIN_ROUNDS} rounds yet")
    use_case, rates = str(table["use_case"].iloc[0]), sorted(set(table["link_bits_per_second"]), reverse=True)
    ways = (table[table["strategy"] == name] for name in dict.fromkeys(stored.of("links")["strategy"]))
    told = "; ".join(_of_way(rows, rates) + _lost(stored.records, rows) for rows in ways if len(rows))
    where = f"on {processor}, " if len(tables) > 1 else ""
    hosts, what = counted(int(table["hosts"].min()), "emulated host"), " (a small CNN)" if use_case == _SMALL else ""
    train = f"{hosts} train {network_name(use_case)}{what}"
    return sentence(f"{where}{train} at these multiples of one core's speed over {_over(rates)}: {told}")


def _known(records: pd.DataFrame) -> pd.DataFrame:
    """The measured speedups of a `link_table`, the highest rate first."""
    table = link_table(records)
    known = table[table["speedup"].notna()] if len(table) else table
    return known.sort_values("link_bits_per_second", ascending=False, kind="stable") if len(known) else known


def _fullness(table: pd.DataFrame) -> tuple[int, int, int]:
    """How much a processor knows: ways and rates, intervals, rounds."""
    return (len(table), int(table["low"].notna().sum()), int(table["rounds"].sum())) if len(table) else (0, 0, 0)


def _of_way(rows: pd.DataFrame, rates: list[float]) -> str:
    """The speedups of one way in the order of the rates: 1.77 [1.7, 1.85] and 1.53 [1.5, 1.56] with TernGrad."""
    gains = listed(f"{estimate_in(row, 'speedup')}{sessions_in(row, 'speedup')}" for row in rows.to_dict("records"))
    name, own = str(rows["strategy"].iloc[0]), rows["link_bits_per_second"].tolist()
    alone = "" if own == rates else f" (over {_over(own)} alone)"
    return f"{gains} {'uncompressed' if name == ALLREDUCE else f'with {sent(name)}'}{alone}"


def _over(rates: list[float]) -> str:
    """Link rates, their unit once where they share it: 10 and 1 Gbit/s."""
    texts = [bits_text(rate).rpartition(" ") for rate in rates]
    shared = len({unit for _, _, unit in texts}) == 1
    return f"{listed(number for number, _, _ in texts)} {texts[0][2]}" if shared else listed(map("".join, texts))


def _lost(records: pd.DataFrame, rows: pd.DataFrame) -> str:
    """The accuracy that a way costs where the records show a loss, as a clause; "" where they show none."""
    name = str(rows["strategy"].iloc[0])
    share = select(records, {"experiment": "links", "strategy": name})["density"].iloc[0]
    table = accuracy_table(records)
    own = table[(table["strategy"] == name) & (table["density"] == share)] if len(table) else table
    for row in own[own["points_high"] < 0].to_dict("records") if len(own) else ():
        lost = Estimate(-row["points"], -row["points_high"], -row["points_low"], int(row["seeds"]), logarithmic=False)
        return f", costing {measure_of(lost, 'points of accuracy')}"
    return ""


def _mpi_costs(stored: Stored) -> str:
    """MPI ranks beside processes without MPI on the same cores of one host."""
    records = stored.records
    shared = {"experiment": "bars", "use_case": _USE_CASE}
    ours, base = cell(records, **shared, strategy=OVER_MPI, workers=2), cell(records, **shared, strategy=WITHOUT_MPI)
    ratio = ratio_with_interval(records, ours, base, "images_per_second")
    told = faster(ratio, aa_noise(records), "MPI ranks", "processes without MPI")
    return sentence(f"within one host, training {network_name(_USE_CASE)}, {told}")


def _network_decides(stored: Stored) -> str:
    """From which link on two hosts pay, and from how many images of a node on the wire takes less than a tenth of a
    step."""
    told, missing = [pays] if (pays := pays_from(stored)) else [], ""
    try:
        images = regimes.worker(stored.records, _USE_CASE).batch_of(regimes.NO_BOTTLENECK, regimes.PAPER_RATE)
        least = f"only with at least {measure_of(images, 'images')} per single-core node"
        told.append(
            f"at {bits_text(regimes.PAPER_RATE)}, sending gradients takes less than {100 * regimes.NO_BOTTLENECK:g} % "
            f"of {network_name(_USE_CASE)}'s step {least}"
        )
    except (NotNow, AnalysisError) as error:
        missing = str(error)
    if not told:
        raise NotNow("", missing)
    return sentence(f"by a model from counted bytes, {'; '.join(told)}")
