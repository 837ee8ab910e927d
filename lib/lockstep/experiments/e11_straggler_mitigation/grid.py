"""Notebook 11's cells. All but the first are in virtual time: every policy of a cell meets the same delays.

real           real ranks whose computing is slept, beside the simulator of the same policy and delays
throughput     how long the same images take, by policy and kind of delays
scale          the same with up to ten thousand workers, for policies that decide round by round
advice         what a replay of a recorded run says of each policy, which throughput can be held against
time_to_loss   until a small network on X-rays has reached a loss, at several shares and learning rates
slow_nodes     the same with 0, 1, 2 ... slow nodes                                            (Figure 4 of the paper)
paper_network  the same with the convolutional network of Table 2, under some kinds of delays
rivals         ours and asynchronous training with momentum, behind a server whose messages take twice as long
stand_ins      what made-up gradients are worth                                         (section 5, Figures 1 and 2)
partitions     leaving out the same worker for ever, with images that are shuffled and images that stay
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lockstep.engine.job import Job
from lockstep.engine.options import JobError
from lockstep.engine.policies import canonical_options
from lockstep.experiments.e11_straggler_mitigation.contenders import REAL
from lockstep.experiments.experiment import Parameters
from lockstep.experiments.simulated import simulated
from lockstep.measure.planning import Comparison

USE_CASE = "Pneumonia"
SEEDS = 20
REAL_ROUNDS = 5
"""Of a cell on real ranks: the fewest that have an interval, which tells policies apart."""
CALIBRATION, CALIBRATED_ON = ("none", "exponential"), (2, 4)
"""Delays and workers of the cells by which the simulated cluster is calibrated, all of them waiting for all."""
RANDOM_DROPS, SAME_DROPPED = "exponential", "bad_node"


def cells(chosen: Parameters) -> list[Job]:
    """Every cell of the notebook, in the order of its records."""
    compute = f"sleep:image_seconds={chosen.image_seconds:g}"
    images: dict[str, Any] = {"use_case": USE_CASE, "compute": compute}
    share = chosen.per_worker_batch_size
    jobs = list(_real(chosen))
    for kind in ("none", *chosen.kinds):
        jobs.append(
            simulated(
                "throughput", delays=kind, workers=chosen.throughput_workers, compute=compute,
                per_worker_batch_size=share, micro_batch=max(1, share // 4), steps=chosen.timed_updates,
            )
        )  # fmt: skip
    for kind in chosen.kinds:
        jobs.append(
            simulated(
                "advice", delays=kind, workers=chosen.throughput_workers, compute=compute,
                per_worker_batch_size=share, micro_batch=max(1, share // 4), steps=chosen.advice_updates,
            )
        )  # fmt: skip
    for workers in chosen.scale_workers:
        for kind in chosen.scale_kinds:
            jobs.append(
                simulated(
                    "scale", delays=kind, workers=workers, compute=compute, per_worker_batch_size=share,
                    micro_batch=max(1, share // 4), steps=max(1, chosen.timed_updates // 2),
                )
            )  # fmt: skip
    for kind in ("none", *chosen.kinds):
        for size in chosen.shares:
            for rate in chosen.learning_rates:
                jobs.append(_learning("time_to_loss", chosen, kind, chosen.workers, size, rate))
    largest = max(chosen.shares)  # so that there is something to divide
    for nodes in range(1, chosen.most_slow_nodes + 1):
        kind = "bad_node" if nodes == 1 else f"bad_node:nodes={nodes}"
        for rate in chosen.learning_rates:
            jobs.append(_learning("slow_nodes", chosen, kind, chosen.workers, largest, rate))
    for kind in ("none", *chosen.paper_network_kinds):
        for rate in chosen.paper_network_rates:
            jobs.append(_learning("paper_network", chosen, kind, chosen.workers, largest, rate, standardise=True))
    for workers in chosen.rival_workers:
        for kind in chosen.rival_kinds:
            for rate in chosen.rival_rates:
                jobs.append(_learning("rivals", chosen, kind, workers, largest, rate))
    fields: dict[str, Any] = {
        "workers": chosen.workers,
        "per_worker_batch_size": share,
        "learning_rate": chosen.stand_in_rate,
    }
    for kind in chosen.stand_in_kinds:
        jobs.append(simulated("stand_ins", delays=kind, steps=chosen.stand_in_updates, **fields, **images))
    for kind in ("none", RANDOM_DROPS, SAME_DROPPED):
        jobs.append(simulated("partitions", delays=kind, steps=chosen.partition_updates, **fields, **images))
    return jobs


def _learning(
    experiment: str, chosen: Parameters, kind: str, workers: int, share: int, rate: float, **fields: Any
) -> Job:
    """Trains in virtual time until the loss is reached, for at most as many images as `most_updates` updates of a batch
    with the largest share and the notebook's own number of workers have, and at least half as many updates."""
    images = chosen.most_updates * max(chosen.shares) * chosen.workers
    updates = max(images // (share * workers), chosen.most_updates // 2, 1)
    return simulated(
        experiment, delays=kind, workers=workers, use_case=USE_CASE, per_worker_batch_size=share,
        micro_batch=max(1, share // 4), learning_rate=rate, steps=updates,
        compute=f"sleep:image_seconds={chosen.image_seconds:g}", **fields,
    )  # fmt: skip


def _real(chosen: Parameters) -> Iterator[Job]:
    """On real ranks: every policy under every kind, and the cells of the calibration, which wait for all."""
    compute = f"sleep:image_seconds={chosen.real_image_seconds:g}"
    share, wait = chosen.real_share, next(iter(REAL.values()))
    kinds = dict.fromkeys((*CALIBRATION, *chosen.real_kinds))
    for workers in chosen.real_workers:
        for kind in kinds:
            for contender in REAL.values():
                if kind in CALIBRATION and contender != wait:
                    continue
                options = canonical_options(
                    contender.policy, contender.options_for(workers, share * chosen.real_image_seconds)
                )
                fields: dict[str, Any] = {"policy": contender.policy, "policy_options": options, "delays": kind}
                # Where every contribution is an update, a step is that of one worker.
                turns = workers if contender.kind == "never waits" else 1
                try:
                    yield Job.of(
                        "parameter_server", experiment="real", use_case=USE_CASE, workers=workers, compute=compute,
                        per_worker_batch_size=share, micro_batch=1, steps=turns * chosen.real_steps,
                        warmup_steps=turns * chosen.real_warmup_steps, **fields,
                    )  # fmt: skip
                except JobError:
                    if contender == wait:
                        raise  # any number of workers can wait for all: something else is wrong
                    continue  # a policy that so few workers can't have, such as one that leaves out one of one


def comparisons(jobs: Sequence[Job]) -> list[Comparison]:
    """Every cell alone: what is compared stands within a simulated cell, or beside the simulator."""
    return [
        Comparison((place,), rounds=REAL_ROUNDS if job.experiment == "real" else SEEDS)
        for place, job in enumerate(jobs)
    ]
