"""What stragglers cost in a recorded run: its step time over that of a run whose equal operations take equally long.

Equation 1 of Lin et al. (2025, OSDI), "Understanding Stragglers in Large Model Training Using What-if Analysis":
S = T / T_ideal, both step times replayed from the operations' durations, and in T_ideal each operation takes the mean
of its kind over all steps, stages and workers. Communication, which stands in both times there, is left out here: it
would move S towards 1 by its share of a step times (S - 1).
"""

from __future__ import annotations

import numpy as np

from lockstep.engine.delays.draws import Floats
from lockstep.engine.delays.traces import ACTIONS, StragglerTrace, complete
from lockstep.engine.options import JobError

_Durations = dict[tuple[str, int, int], Floats]  # (action, stage, micro-batch) -> seconds [steps × workers]


def slowdown(trace: StragglerTrace, schedule: str = "1f1b") -> float:
    """Mean step time / mean straggler-free step time of a synchronous run; 1 where nobody straggles.

    A step ends when the last worker has ended it. With one stage a worker's time is the sum of its rows. With several,
    the micro-batches pass the stages in the order of `schedule` (lockstep.engine.pipelines.order), and messages take no
    time. Raises JobError for a trace with stages but not a row for each forward and backward pass of a micro-batch.
    """
    table = trace.table
    steps = len(trace.segments)
    if len(trace.stages) == 1:
        totals = trace.step_seconds(trace.stages[0])
        return float(totals.max(axis=1).mean() / totals.mean())
    if set(table["action"]) != set(ACTIONS):
        raise JobError(f"{trace.name} has {len(trace.stages)} stages; give its forward and backward passes (action)")
    wide = table.pivot(index=["step", "worker"], columns=["action", "stage", "micro_batch"], values="seconds")
    complete(wide, trace.name)
    durations = {(str(key[0]), int(key[1]), int(key[2])): wide[key].to_numpy() for key in wide.columns}
    means = {action: rows["seconds"].mean() for action, rows in table.groupby("action")}
    ideal = {key: np.full(1, means[key[0]]) for key in durations}
    actual = _step_seconds(durations, trace, schedule).reshape(steps, -1).max(axis=1).mean()
    return float(actual / _step_seconds(ideal, trace, schedule)[0])


def _step_seconds(durations: _Durations, trace: StragglerTrace, schedule: str) -> Floats:
    """From the start of a pipeline's first pass to the end of its last: the durations' shape."""
    from lockstep.engine.pipelines.order import BACKWARD, FORWARD, Action, order

    stages, micro_batches = len(trace.stages), 1 + int(trace.table["micro_batch"].max())
    waiting = {rank: list(reversed(row)) for rank, row in order(schedule, stages, 1, micro_batches).items()}
    free: dict[int, Floats] = {rank: np.zeros(1) for rank in waiting}
    ends: dict[Action, Floats] = {}
    while any(waiting.values()):
        for rank, actions in waiting.items():
            while actions:
                now = actions[-1]
                near = rank - 1 if now.kind == FORWARD else rank + 1
                need = Action(near, now.micro_batch, FORWARD if now.kind == FORWARD else BACKWARD)
                if 0 <= near < stages and need not in ends:
                    break
                begun = np.maximum(free[rank], ends[need]) if need in ends else free[rank]
                free[rank] = ends[now] = begun + durations[now.kind, trace.stages[rank], now.micro_batch]
                actions.pop()
    return np.maximum.reduce(np.broadcast_arrays(*free.values()))
