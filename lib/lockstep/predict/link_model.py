"""What moving bytes should take: the α–β model of a link, fitted to ping-pong, and what it predicts for an exchange.

    seconds = messages x α + bytes x β        α: of any message, however short; β: of a byte (1 / bandwidth)

`messages` and `bytes` are those of the longest chain: messages that wait for each other, and what the busiest link
must carry one way after the other (Hockney 1994; the counts for collectives are those of Thakur et al. 2005).

    all-reduce over p = 2^k hosts   2 k messages   2 (p-1)/p B     reduce-scatter by halving, all-gather by doubling
    the same over sockets           2              2 (p-1)/p B     a p-th to each, then the sums back
    the same by one-sided gets      7              2 (p-1)/p B     asking and answering twice, meeting three times
    one server, p workers           2              2 p B           all gradients in, all parameters out
    every worker serves a p-th      2              2 (p-1)/p B     each link carries only its p-th twice
    ring neighbours (gossip)        1              2 B, if p > 2   parameters to both neighbours

α is that of the group's own messages (packed, probed for, received into fresh memory), not of the bare wire: it says
little about short messages that MPI's collectives carry in another way. Trust it where bytes decide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.cells import cells, median_of, outcome
from lockstep.analysis.statistics import AnalysisError, Estimate, interval_of, per_round
from lockstep.engine import registry
from lockstep.engine.declared import Chain
from lockstep.engine.units import bits_text

PING_PONG = "ping_pong"


@dataclass(frozen=True)
class AlphaBeta:
    """A link: seconds of any message, and of each byte."""

    alpha_seconds: float
    beta_seconds_per_byte: float

    def seconds(self, messages: float, sent_bytes: float) -> float:
        return messages * self.alpha_seconds + sent_bytes * self.beta_seconds_per_byte

    def seconds_of(self, chain: Chain) -> float:
        return self.seconds(chain.messages, chain.bytes)

    @property
    def bytes_per_second(self) -> float:
        return 1 / self.beta_seconds_per_byte if self.beta_seconds_per_byte else math.inf

    def __str__(self) -> str:
        return f"{self.alpha_seconds * 1e6:.3g} µs per message, {bits_text(8 * self.bytes_per_second)}"


def fit(sent_bytes: Sequence[float], seconds: Sequence[float]) -> AlphaBeta:
    """α, β >= 0 with the least squared *relative* error, so that short messages count as much as long ones.

    Raises AnalysisError for fewer than two sizes, or times that are not above 0.
    """
    from scipy.optimize import nnls

    size, time = np.asarray(sent_bytes, dtype=float), np.asarray(seconds, dtype=float)
    if len(set(size)) < 2:
        raise AnalysisError(f"messages of {sorted(set(size.tolist()))} bytes: alpha and beta need two sizes")
    if not (np.isfinite(time).all() and (time > 0).all()):
        raise AnalysisError(f"seconds={time.tolist()}: give times above 0")
    scale = size.max()  # both columns of a like size, for the solver
    (alpha, beta), _ = nnls(np.stack([1 / time, size / scale / time], axis=1), np.ones(len(time)))
    return AlphaBeta(float(alpha), float(beta / scale))


def chain(cell: Mapping[str, Any], message_bytes: float) -> Chain | None:
    """The longest chain of an exchange of `message_bytes` by this cell, as its sync declares it; None where unknown.

    The parties are hosts where the cell has several, for what ranks of one host send each other does not use the link;
    otherwise they are workers. One party alone exchanges nothing.
    """
    sync, parties = registry.sync_of(cell["sync"]), int(cell["hosts"] if cell["hosts"] > 1 else cell["workers"])
    if cell["sync"] == PING_PONG:
        return Chain(1, message_bytes)
    if sync is None:
        return None
    return sync.chain(cell, parties, message_bytes) if cell["workers"] > 1 else Chain(0, 0)


def link_of(records: pd.DataFrame, experiment: str = "wire") -> AlphaBeta:
    """The link of an experiment, from its ping-pong rows of all sizes and rounds. Raises AnalysisError without any."""
    rows = records[(records["experiment"] == experiment) & (records["strategy"] == PING_PONG)]
    rows = rows[rows["status"] == "ok"]
    if rows.empty:
        raise AnalysisError(f"experiment {experiment!r} holds no ping-pong: the link is not known")
    middle = rows.groupby("message_bytes")["exchange_seconds"].median()
    return fit(middle.index.to_numpy(dtype=float), middle.to_numpy(dtype=float))


def link_or_none(records: pd.DataFrame, experiment: str = "wire") -> AlphaBeta | None:
    """`link_of`, or None where no ping-pong was measured."""
    try:
        return link_of(records, experiment)
    except AnalysisError:
        return None


def exchange_seconds(records: pd.DataFrame) -> pd.DataFrame:
    """`records` with a column `seconds`: the exchange in a step that does nothing else, without the optimiser and
    without the barrier before it, where there is one. With a server, waiting for it is the exchange."""
    served = records["step_seconds"] - records["update_seconds"]
    met = [PING_PONG, *(name for name, sync in registry.syncs_and_peers().items() if sync.meets)]
    return records.assign(seconds=records["exchange_seconds"].where(records["sync"].isin(met), served))


def message_table(records: pd.DataFrame, experiment: str, link: AlphaBeta | None = None) -> pd.DataFrame:
    """A row per strategy and size of an experiment without a model: how long an exchange of `bytes` takes.

    Columns: experiment, strategy, hosts, workers, servers, bytes, seconds, seconds_low, seconds_high,
    predicted_seconds (of `link`), ratio, low, high (measured / predicted, paired per round), link_bytes_sent (B per
    step), rounds, status, reason. Numbers are NaN where nothing was measured or predicted.
    """
    timed, table = exchange_seconds(records), []
    for cell, rows in cells(timed, experiment):
        status, reason = outcome(rows)
        row = {name: cell[name] for name in ("experiment", "strategy", "hosts", "workers", "servers")}
        row |= {"bytes": int(cell["message_bytes"])} | _times(timed, cell, status, link)
        row |= {"link_bytes_sent": median_of(rows, "link_bytes_sent"), "status": status, "reason": reason}
        table.append(row)
    return pd.DataFrame(table)


def _times(timed: pd.DataFrame, cell: dict[str, Any], status: str, link: AlphaBeta | None) -> dict[str, float]:
    names = ("seconds", "seconds_low", "seconds_high", "predicted_seconds", "ratio", "low", "high")
    if status != "ok":
        return dict.fromkeys(names, math.nan) | {"rounds": 0}
    values = per_round(timed, cell, "seconds")
    seconds = interval_of(values)
    counts = chain(cell, float(cell["message_bytes"]))
    predicted = math.nan
    if link is not None and counts is not None and counts.counted:
        predicted = link.seconds_of(counts)
    ratio = interval_of(values / predicted) if predicted > 0 else Estimate(math.nan, math.nan, math.nan, 0)
    found = (*seconds.columns, predicted, *ratio.columns)
    return dict(zip(names, found, strict=True)) | {"rounds": seconds.rounds}


def wire_table(records: pd.DataFrame) -> pd.DataFrame:
    """`message_table` of the exchanges over an emulated link (experiments `wire` and `servers_wire`) against the link
    that ping-pong measured. Raises AnalysisError without ping-pong rows."""
    link = link_of(records)
    parts = [message_table(records, name, link) for name in ("wire", "servers_wire")]
    parts = [part for part in parts if len(part)]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def fit_table(table: pd.DataFrame) -> pd.DataFrame:
    """For every strategy of a `message_table`, a line fitted over its sizes: the seconds of a message without bytes,
    and how many bytes *of the message* (not of what is sent for it) each further second carries."""
    rows = []
    for name, own in table[table["status"] == "ok"].groupby("strategy", sort=False):
        if own["bytes"].nunique() < 2:
            continue
        found = fit(own["bytes"].to_numpy(dtype=float), own["seconds"].to_numpy(dtype=float))
        worst = float((found.seconds(1, own["bytes"]) / own["seconds"] - 1).abs().max())
        rows.append(
            {
                "strategy": name,
                "seconds_at_0_bytes": found.alpha_seconds,
                "message_bytes_per_second": found.bytes_per_second,
                "worst_relative_error": worst,
            }
        )
    return pd.DataFrame(rows)
