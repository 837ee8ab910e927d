"""The answer to notebook 05's title: what pays over MPI, from which link on, and from which batch on the network is no
bottleneck."""

from __future__ import annotations

from lockstep.analysis.confidence import MIN_ROUNDS, AnalysisError
from lockstep.analysis.noise import aa_noise
from lockstep.analysis.sentences import counted, faster, finding, measure_of, network_name, sentence
from lockstep.analysis.statistics import ratio_with_interval
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NotNow, cell
from lockstep.engine.units import bits_text
from lockstep.experiments.e05_mpi_distribution import regimes
from lockstep.experiments.e05_mpi_distribution.findings import at_rate, pays_from
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
    """At every rate the ways with an interval, and how many ways have none yet."""
    table = link_table(stored.records)
    if table.empty or table["speedup"].isna().all():
        raise NotNow("", "no training over emulated links was measured")
    hosts, known = counted(int(table["hosts"].min()), "emulated host"), table[table["low"].notna()]
    told = [at_rate(rate, rows) for rate, rows in known.groupby("link_bits_per_second")]
    if not told:
        raise NotNow("", f"no way of exchanging over the links has {MIN_ROUNDS} rounds yet")
    rest = int((table["speedup"].notna() & table["low"].isna()).sum())
    open_yet = f"; too few rounds for {counted(rest, 'more comparison')}" if rest else ""
    use_case = str(table["use_case"].iloc[0])
    what = " (a small CNN)" if use_case == _SMALL else ""
    first = f"{hosts} train {network_name(use_case)}{what} at these multiples of one core's speed: {told[-1]}{open_yet}"
    return " ".join(map(sentence, (first, *told[-2::-1])))


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
