"""What we aim at in notebook 05: MPI workers of one machine, and of emulated hosts with links between them."""

from __future__ import annotations

from typing import Any

from lockstep.analysis.statistics import AnalysisError, Estimate, interval_of, select
from lockstep.analysis.stored import Stored
from lockstep.analysis.targets import AT_MOST, MISSING, WITHIN, Read, Reading, Target, compared, lacking, per_worker
from lockstep.analysis.verdicts import NOT_YET
from lockstep.predict.link_model import PING_PONG, wire_table

_BESIDE_DDP: dict[str, Any] = {"experiment": "bars", "use_case": "SimpleBig", "variant": "a", "device": "cpu"}
_ENGINES = {"strategy": "engines_shared_memory", "workers": 2}
_SERVERS = {"experiment": "servers_wire", "use_case": "SimpleBig", "variant": "a"}
_BETWEEN = {"experiment": "between_hosts", "variant": "a"}
_BYTES = "bytes between 2 hosts of 2 ranks: shared memory per host over"
_WIRES = ["wire", "servers_wire"]
_WIRE_BYTES = 1 << 20
"""Of shorter messages the latency of the path through Python decides, not the wire."""


def _over_ddp(workers: int, precision: str) -> Read:
    sides = [{"strategy": name, "workers": workers} for name in ("engines_shared_memory", "ddp")]
    return compared(sides[0], sides[1], shared=_BESIDE_DDP | {"precision": precision})


def _worst_over_ddp(stored: Stored) -> Reading:
    """Engines over DDP, at the number of workers where they gain least; no number while one of them is missing."""
    wanted = _BESIDE_DDP | {"precision": "float32", "strategy": ["engines_shared_memory", "ddp"]}
    counts = sorted({int(count) for count in select(stored.records, wanted, status=None)["workers"]})
    found = {count: _over_ddp(count, "float32")(stored) for count in counts}
    for count, reading in found.items():
        if reading.ratio is None:
            return Reading(None, reading.word, f"{count} workers: {reading.reason}")
    ratios = {count: reading.ratio for count, reading in found.items() if reading.ratio is not None}
    if not ratios:
        return Reading(None, NOT_YET, MISSING)
    worst = min(ratios, key=lambda count: ratios[count].value)
    others = f"the worst of {', '.join(map(str, counts))}" if len(counts) > 1 else "the only number measured"
    return Reading(ratios[worst], reason=f"at {worst} workers, {others}")


def _engine_start(stored: Stored) -> Reading:
    """Seconds until all engines of a team were ready, over all starts; a team that stayed warm counts once."""
    rows = select(stored.records, {"launcher": "engines"}, status=None)
    starts = rows[rows["status"] == "ok"]["launch_seconds"].dropna().astype(float).drop_duplicates()
    starts = starts[starts > 0]
    return lacking([rows], MISSING) if starts.empty else Reading(interval_of(starts))


def _worst_wire(stored: Stored) -> Reading:
    """Measured over predicted seconds of the exchange that the model of the link predicts worst.

    Of messages of _WIRE_BYTES and more, sent as the calibrating ping-pong's are; one-sided MPI and plain sockets are
    other protocols, and the ping-pong itself is what the model was fitted to.
    """
    records = select(stored.records, {"transport": "messages"}, status=None)
    rows = select(records, {"experiment": _WIRES}, status=None)
    rows = rows[(rows["message_bytes"] >= _WIRE_BYTES) & (rows["strategy"] != PING_PONG)]
    try:
        table = wire_table(records)
    except AnalysisError as error:
        return lacking([rows], str(error))
    judged = (table["bytes"] >= _WIRE_BYTES) & (table["strategy"] != PING_PONG) & table["ratio"].notna()
    known = table[judged]
    if known.empty:
        return lacking([rows], f"no exchange of {_WIRE_BYTES >> 20} MiB or more that the model predicts")
    worst = known.loc[(known["ratio"] - 1).abs().idxmax()]
    ratio = Estimate(float(worst["ratio"]), float(worst["low"]), float(worst["high"]), int(worst["rounds"]))
    which = f"the worst of {len(known)}: {worst['strategy']}, {worst['bytes'] / 1024:g} KiB"
    return Reading(ratio, reason=which)


def _bytes_over(strategy: str) -> Read:
    """Bytes between hosts against MPI's all-reduce, which may pair the ranks of a host first, or a direct exchange."""
    return compared({"strategy": "mpi_shared_memory"}, {"strategy": strategy}, "link_bytes_sent", _BETWEEN)


TARGETS: tuple[Target, ...] = (
    Target("shared memory through engines over DDP, 2 workers, float32", 1.10, _over_ddp(2, "float32")),
    Target("shared memory through engines over DDP, 2 workers, bfloat16", 1.18, _over_ddp(2, "bfloat16")),
    Target("shared memory through engines over DDP at every number of workers", 1.00, _worst_over_ddp),
    Target(
        "a step through engines over one under mpiexec",
        1.02,
        compared(
            _ENGINES,
            {"strategy": "mpi_shared_memory", "workers": 2},
            "step_seconds",
            _BESIDE_DDP | {"precision": "float32"},
        ),
        AT_MOST,
    ),
    Target("seconds until the engines are ready", 10.0, _engine_start, AT_MOST),
    Target(
        "efficiency of 2 workers on 2 cores",
        0.93,
        per_worker(compared(_ENGINES, {"strategy": "sequential"}, shared=_BESIDE_DDP | {"precision": "float32"}), 2),
    ),
    Target(
        "an exchange over 1 Gbit/s by 4 workers and a server over one by a slice on each of 4 workers",
        1.50,
        compared({"strategy": "parameter_server"}, {"strategy": "sharded_server"}, "step_seconds", _SERVERS),
    ),
    Target(
        "time on the wire over what the alpha-beta model of the link predicts, messages of 1 MiB and more",
        0.10,
        _worst_wire,
        WITHIN,
    ),
    Target(f"{_BYTES} MPI's all-reduce", 0.55, _bytes_over("mpi_allreduce"), AT_MOST),
    Target(f"{_BYTES} an all-reduce of every rank with every other", 0.55, _bytes_over("sockets"), AT_MOST),
)
