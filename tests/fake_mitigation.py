"""Records of notebook 11 as they could be: made up from a few numbers for each policy, so tests know all answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.stored import Stored
from lockstep.engine.job import Job
from lockstep.experiments.e11_straggler_mitigation.contenders import (
    ADVISED,
    CODING,
    CONTENDERS,
    DOLLY,
    DPRO_GRADIENT,
    DPRO_SHARES,
    DROP_ONE,
    LEARNERS,
    LEFT_OUT,
    LSTM_GRADIENT,
    LSTM_WEIGHTS,
    NEVER_WAIT,
    NOTHING_STANDS_IN,
    OURS,
    RIVALS,
    ROUND_BY_ROUND,
    SGC,
    SHUFFLED,
    STAND_INS,
    STAY,
    WAIT,
    ZERO_STANDS_IN,
)
from lockstep.experiments.e11_straggler_mitigation.grid import cells
from lockstep.experiments.experiment import Parameters
from lockstep.records import COLUMNS, make_row

KINDS = ["exponential", "markov:seconds=0.5", "bad_node"]
CHOSEN = Parameters(
    kinds=KINDS, throughput_workers=16, timed_updates=200, advice_updates=50, scale_workers=[16, 1024],
    scale_kinds=["pareto"], image_seconds=0.0125, per_worker_batch_size=8, workers=8, shares=[8, 16],
    learning_rates=[0.05, 0.2], most_updates=600, most_slow_nodes=2, paper_network_kinds=KINDS,
    paper_network_rates=[0.05, 0.2], rival_workers=[8, 32], rival_kinds=["exponential"], rival_rates=[0.05, 0.2],
    stand_in_kinds=["bad_node", "gone:at=2"], stand_in_updates=150, partition_updates=150, stand_in_rate=0.05,
    real_workers=[], real_kinds=[], real_share=2, real_image_seconds=0.15, real_steps=3, real_warmup_steps=1,
)  # fmt: skip
IDEAL, WAITING = 0.8e-3, 1.6e-3
"""Seconds per image without delays, and of waiting for all under any kind."""
SAVED = 0.5
"""What any policy but waiting for all saves, unless a test says otherwise."""
COPIES: Mapping[str, float] = {DOLLY: 2.0, CODING: 2.0, SGC: 2.0}
TIMES: Mapping[str, float] = {
    WAIT: 2.0, DPRO_SHARES: 1.7, DPRO_GRADIENT: 1.9, DROP_ONE: 1.65, OURS: 1.3, NEVER_WAIT: 1.25,
}  # fmt: skip
"""Policy -> its time to the loss under delays, over waiting for all without any; 1.8 of all others."""
NO_DELAYS: Mapping[str, float] = {OURS: 1.02}
RIVAL_TIMES: Mapping[str, float] = {NEVER_WAIT: 1.0, OURS: 1.1, WAIT: 1.6}
LOSSES: Mapping[str, float] = {LEFT_OUT: 0.2, LSTM_GRADIENT: 0.4, LSTM_WEIGHTS: 0.5, WAIT: 0.19}
"""Final loss; 0.2 of all others, nothing included."""


def stored(
    seeds: int = 10, saved: Mapping[Any, float] | None = None, copies: Mapping[str, float] | None = None,
    times: Mapping[Any, float] | None = None, missed: Collection[tuple[str, str]] = (),
    losses: Mapping[str, float] | None = None, rivals: Mapping[str, float] | None = None,
    scaled: float = 1.0, images: tuple[int, int] = (2000, 618), source: str = "real", noise: float = 0.01,
    only: Collection[str] = (),
) -> Stored:  # fmt: skip
    """So many seeds of every cell. `saved` and `times` by policy, or by policy and kind; `missed`: (policy, kind) that
    do not reach the loss; `scaled`: how much more the others save with the most workers; `only`: of these
    experiments, where they are named."""
    world = _World(saved or {}, {**COPIES, **(copies or {})}, {**TIMES, **(times or {})}, set(missed),
                   {**LOSSES, **(losses or {})}, {**RIVAL_TIMES, **(rivals or {})}, scaled, images, noise)  # fmt: skip
    rows, table, number = [], [], 0
    for job in cells(CHOSEN):
        if only and job.experiment not in only:
            continue
        for seed in range(seeds):
            one = job.with_(seed=seed, round=number, data_source=source)
            rows.append(make_row(one, {"step_seconds": 0.1, "measuring_seconds": 6.0}))
            table += world.rows(one)
            number += 1
    return Stored(pd.DataFrame(rows, columns=list(COLUMNS)), {"policies": pd.DataFrame(table)})


_TIMED = {"throughput": CONTENDERS, "advice": ADVISED}


class _World:
    def __init__(self, saved: Any, copies: Any, times: Any, missed: Any, losses: Any, rivals: Any, scaled: float,
                 images: tuple[int, int], noise: float) -> None:  # fmt: skip
        self.saved, self.copies, self.times, self.missed = saved, copies, times, missed
        self.losses, self.rivals, self.scaled, self.images, self.noise = losses, rivals, scaled, images, noise

    def rows(self, job: Job) -> list[dict[str, Any]]:
        cell = {name: getattr(job, name) for name in ("workers", "round", "experiment", "use_case", "delays", "seed",
                                                      "per_worker_batch_size", "learning_rate")}  # fmt: skip
        rng = np.random.default_rng([job.seed, *job.delays.encode()])
        made = {
            "throughput": self._timed, "scale": self._timed, "advice": self._timed,
            "time_to_loss": self._trained, "slow_nodes": self._trained,
            "paper_network": self._trained, "rivals": self._trained, "stand_ins": self._stand_ins,
            "partitions": self._partitions,
        }[job.experiment](job, rng)  # fmt: skip
        return [{**cell, "reason": "", "data": "", **row} for row in made]

    def _varied(self, rng: np.random.Generator, value: float) -> float:
        return value * float(rng.normal(1, self.noise))

    def _timed(self, job: Job, rng: np.random.Generator) -> list[dict[str, Any]]:
        rows = []
        scale = self.scaled if job.workers > 100 else 1.0
        waiting = IDEAL if job.delays == "none" else self._varied(rng, WAITING)
        for name, one in _TIMED.get(job.experiment, ROUND_BY_ROUND).items():
            share = 0.0 if name == WAIT else self.saved.get((name, job.delays), self.saved.get(name, SAVED))
            own = waiting - (0.0 if name == WAIT else self._varied(rng, min(1.0, scale * share))) * (waiting - IDEAL)
            rows.append({
                "contender": name, "policy": one.policy, "standby": one.standby, "updates": 200, "samples": 25600,
                "seconds": own * 25600, "wasted_share": 0.1, "events": 200 * 34,
                "computed": self._varied(rng, self.copies.get(name, 1.0)), "seconds_per_sample": own,
                "ideal_seconds_per_sample": IDEAL if name == WAIT else np.nan,
                "bound_seconds_per_sample": 0.9 * IDEAL if name == WAIT else np.nan,
            })  # fmt: skip
        return rows

    def _trained(self, job: Job, rng: np.random.Generator) -> list[dict[str, Any]]:
        """The best setting is 8 images at the larger rate, but for asynchronous training, which needs the smaller."""
        pace, rows = float(np.random.default_rng(job.seed).normal(1, 0.05)), []  # of a seed, whatever the delays
        rival = job.experiment == "rivals"
        for name, one in (RIVALS if rival else LEARNERS).items():
            kind = job.delays.partition(":")[0]
            under = self.times.get((name, job.delays), self.times.get(name, 1.8))
            under = self.rivals.get(name, 1.4) if rival else under
            ratio = NO_DELAYS.get(name, 1.0) if kind == "none" else under
            smaller = name == NEVER_WAIT
            worse = 1.2 if job.per_worker_batch_size == 16 else 1.0
            worse *= 1.0 if (job.learning_rate == 0.05) == smaller else 1.5
            seconds = 10 * pace * worse * self._varied(rng, ratio)
            never = (name, job.delays) in self.missed or (rival and smaller and job.learning_rate > 0.1)
            rows.append({
                "contender": name, "policy": one.policy, "standby": 0, "samples": 6000 * worse, "seconds": seconds,
                "updates": 100 * worse * (8 / 7 if name == DROP_ONE else 1), "loss": 0.5 if never else 0.149,
                "accuracy": self._varied(rng, 0.8), "target_loss": 0.15, "reason": "a loss of 0.5" if never else "",
                "seconds_to_loss": np.nan if never else seconds,
            })  # fmt: skip
        return rows

    def _stand_ins(self, job: Job, rng: np.random.Generator) -> list[dict[str, Any]]:
        rows = []
        for name, one in STAND_INS.items():
            made = "stand" in name and name not in (NOTHING_STANDS_IN, ZERO_STANDS_IN)
            never = name == WAIT and job.delays.startswith("gone")
            rows.append({
                "contender": name, "policy": one.policy, "standby": 0, "stand_ins": 40 if made else 0,
                "loss": np.nan if never else self._varied(rng, self.losses.get(name, 0.2)),
                "reason": "waits for ever after 20 updates" if never else "", "accuracy": 0.8,
                "cosine": float(rng.normal(0.02, 0.01)) if made else np.nan, "own_cosine": 0.4 if made else np.nan,
            })  # fmt: skip
        return rows

    def _partitions(self, job: Job, rng: np.random.Generator) -> list[dict[str, Any]]:
        rows = []
        for data in (SHUFFLED, STAY):
            for name in (WAIT, DROP_ONE):
                lost = 2.0 if (data, name, job.delays) == (STAY, DROP_ONE, "bad_node") else 1.0
                rows.append({
                    "contender": name, "policy": CONTENDERS[name].policy, "standby": 0, "data": data,
                    "train_images": self.images[0], "test_images": self.images[1],
                    "loss_of_worker_0": self._varied(rng, 0.05 * lost), "loss_of_others": self._varied(rng, 0.05),
                })  # fmt: skip
        return rows
