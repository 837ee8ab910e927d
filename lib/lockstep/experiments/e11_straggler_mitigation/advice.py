"""What a replay of a recorded run advises, and what following it costs: chosen on one seed, judged on the next.

recorded   waiting for all, some updates of one seed: a table of tasks, as a run on real ranks writes it
replayed   the same times under every policy; the quickest per image is the advice
judged     by that policy's time per image under the same kind of delays with another seed's draws
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lockstep.analysis.confidence import Estimate
from lockstep.analysis.figures.style import GREY, empty, look
from lockstep.analysis.seeds import mean_columns
from lockstep.analysis.sentences import counted, finding, listed, sentence
from lockstep.analysis.statistics import interval_of
from lockstep.analysis.stored import Stored, once
from lockstep.analysis.verdicts import NotNow
from lockstep.experiments.e11_straggler_mitigation.contenders import ADVISED, WAIT
from lockstep.experiments.e11_straggler_mitigation.drawings import MEAN, points, rows_figure
from lockstep.experiments.e11_straggler_mitigation.rows import (
    ADVICE,
    THROUGHPUT,
    estimate_in,
    kind_name,
    kinds_of,
    over_kinds,
    ratio_over_seeds,
    required,
    rows_of,
    wide,
)


def _by_kind(stored: Stored) -> dict[str, tuple[pd.DataFrame, pd.DataFrame]]:
    """Kind -> seconds per image of the replays and of what was then simulated: seeds x policies that have both. The row
    of a seed holds the replay of that seed, and the times of the next one."""
    found = {}
    replays, timed = rows_of(stored, ADVICE), rows_of(stored, THROUGHPUT)
    for delays in kinds_of(replays):
        told = wide(replays[replays["delays"] == delays], "seconds_per_sample", "contender")
        own = timed[(timed["delays"] == delays) & timed["contender"].isin(list(ADVISED))]
        then = wide(own, "seconds_per_sample", "contender")
        seeds = [seed for seed in told.index if seed in then.index]
        names = [name for name in ADVISED if name in told and name in then]
        if len(seeds) < 2 or WAIT not in names:
            continue  # nothing to judge by
        told, then = told.loc[seeds, names], then.loc[seeds, names]
        found[delays] = told, then.iloc[np.roll(np.arange(len(seeds)), -1)].set_axis(seeds)
    return found


@once
def advice_table(stored: Stored) -> pd.DataFrame:
    """By kind of delays: what was advised most often, and with how many seeds; the time per image of who follows the
    advice (`followed`) and of waiting for all (`waiting`), over that of the policy that is best over all seeds; by how
    much the replays' times over waiting for all are off in the median (`error`)."""
    table = []
    for delays, (told, then) in _by_kind(stored).items():
        chosen = told.idxmin(axis=1)
        means = np.log(then).mean()  # of a policy that does not end with every seed, nothing
        best = str(means[np.isfinite(then).all()].idxmin())
        followed = pd.Series({seed: then.loc[seed, name] for seed, name in chosen.items()})
        name, times = Counter(chosen).most_common(1)[0]
        row: dict[str, Any] = {"delays": delays, "kind": kind_name(delays), "advised": name, "times": times}
        row |= {"best": best} | mean_columns(ratio_over_seeds(followed / then[best]), "followed")
        row |= mean_columns(ratio_over_seeds(then[WAIT] / then[best]), "waiting")
        off = (told.div(told[WAIT], axis=0) / then.div(then[WAIT], axis=0) - 1).drop(columns=WAIT).abs()
        table.append(row | {"error": float(np.nanmedian(off)), "seeds": len(chosen)})
    return pd.DataFrame(table)


def mixed_advice(stored: Stored, name: str = "") -> Estimate | None:
    """The time per image of who follows the advice, or of one policy, over that of the best policy of each kind: the
    geometric mean over kinds."""
    best = advice_table(stored)
    if best.empty:
        return None
    known, ratios = best.set_index("delays")["best"], {}
    for delays, (told, then) in _by_kind(stored).items():
        chosen = told.idxmin(axis=1) if not name else pd.Series(name, told.index)
        own = pd.Series({seed: then.loc[seed, one] for seed, one in chosen.items()})
        ratios[delays] = own / then[known[delays]]
    found = over_kinds(pd.DataFrame(ratios))
    return interval_of(found) if len(found) and np.isfinite(found).all() else None


@finding
def advice(stored: Stored) -> str:
    """What following the advice costs beside knowing, and beside never asking; where it costs the most."""
    table = required(advice_table(stored), "replays beside throughput")
    followed, waiting = mixed_advice(stored), mixed_advice(stored, WAIT)
    if followed is None or waiting is None:
        raise NotNow("", "a policy that was advised does not end with every seed")
    kinds = counted(len(table), "kind")
    said = [sentence(
        f"who replays a recorded run and takes the quickest policy needs {followed} times the time per image of the "
        f"best policy of each kind, mean over {kinds}; who waits for all {waiting} times"
    )]  # fmt: skip
    slower = listed(table[table["followed_low"] > table["waiting_high"]]["kind"]) or "no kind"
    said.append(sentence(f"following the advice is clearly slower than waiting for all under {slower}"))
    known = table.dropna(subset=["followed_low", "waiting_low"])
    if len(known):
        worst = known.loc[known["followed_low"].idxmax()]
        both = f"{estimate_in(worst, 'followed')} times, and waiting for all {estimate_in(worst, 'waiting')}"
        said.append(sentence(f"by the lower ends of the intervals, it costs most under {worst['kind']}: {both}"))
    errors = 100 * table["error"]
    said.append(sentence(
        f"replayed gains are off by {errors.min():.0f} to {errors.max():.0f} % in the median, by kind"
    ))  # fmt: skip
    return " ".join(said)


def advice_figure(stored: Stored) -> Figure:
    """Time per image of who follows the advice and of who waits for all, over the best policy's, by kind."""
    title = "What a replay of a recorded run advises (simulated)"
    table = advice_table(stored)
    if table.empty:
        return empty(title, "no replay was held against throughput with two seeds yet")
    with look():
        figure = rows_figure(1.3 * len(table), 8.0, 1.9)
        axis = figure.subplots()
        points(axis, table, ("followed", "followed_low", "followed_high"), -0.12, color=MEAN)
        points(axis, table, ("waiting", "waiting_low", "waiting_high"), 0.12, color=GREY, markerfacecolor="white")
        axis.axvline(1, color="0.2", linewidth=1)
        axis.set_xlim(left=0)
        axis.set_yticks(range(len(table)), [f"{row['kind']}: {row['advised']}" for _, row in table.iterrows()])
        axis.set_ylim(len(table) - 0.5, -0.5)
        axis.grid(False, axis="y")
        axis.set_xlabel("time per image / that of the best policy of the kind (95 % interval over seeds)")
        figure.suptitle(title)
        marks = [Line2D([], [], linestyle="none", marker="o", color=MEAN, label="follows the advice"),
                 Line2D([], [], linestyle="none", marker="o", color=GREY, markerfacecolor="white",
                        label="waits for all")]  # fmt: skip
        figure.legend(handles=marks, loc="outside lower center", ncols=2, frameon=False)
    return figure
