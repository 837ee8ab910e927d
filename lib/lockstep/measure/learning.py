"""The grid of notebook 07: cells that train until they have learnt, and cells whose steps are timed.

    learning     ways to train x batch sizes, at equal epochs; the linear rule; equal updates; TensorFlow
    candidates   settings, scored on held-out training images and on the test split
    selected     finalists among them, trained anew on all training images if they need no held-out ones
    ablation     pooling x dropout
    paired       one setting and seed by one worker and by several
    speed        steps of all ways and both frameworks, from memory
    profile      a step of each framework, operator by operator

Where workers share a step, its global batch stays as it is: the parameters that come out are those of one worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lockstep.job import Job, JobError
from lockstep.strategies import STRATEGIES, SYNC_LAUNCHER

PLAIN_BATCH = 32
"""Table 2's; the linear rule counts from it."""
WARMUP_STEPS = 4
"""Of a timed cell: in the first three a worker's heap still grows, and page faults would be in what is measured."""
Setting = Mapping[str, Any]
_OWN = ("processes", "processes_allreduce", "ddp")
"""Rows that are about processes which nobody but this library starts."""


def trained(
    strategy: str, experiment: str, *, global_batch_size: int = PLAIN_BATCH, workers: int = 2, **fields: Any
) -> Job:
    """A cell whose global batch is split among its workers (of a pipeline: goes through its stages)."""
    split = STRATEGIES[strategy].distributed and not _pipelined(strategy)
    share = max(1, -(-global_batch_size // workers)) if split else global_batch_size
    return Job.of(
        strategy, experiment=experiment, workers=workers, per_worker_batch_size=share,
        global_batch_size=global_batch_size, **fields,
    )  # fmt: skip


def _pipelined(strategy: str) -> bool:
    return STRATEGIES[strategy].fields.get("model_parallel") == "pipeline"


def learning_cells(
    use_case: str,
    network: str,
    ways: Mapping[str, Sequence[int]],
    *,
    epochs: int,
    linear: Sequence[int] = (),
    warmup_epochs: int = 0,
    updates: int = 0,
    updated: Sequence[int] = (),
    tensorflow: Sequence[int] = (),
) -> list[Job]:
    """Accuracy against batch size: `ways` names strategies and their batch sizes, for `epochs` epochs each.

    By the first of them also the linear rule with warm-up (batch sizes `linear`), `updates` updates (batch sizes
    `updated`) and TensorFlow (batch sizes `tensorflow`): other ways train the same parameters.
    """
    shared: dict[str, Any] = {"use_case": use_case, "network": network, "scored_on": "test"}
    jobs = [
        trained(way, "learning", global_batch_size=size, epochs=epochs, **shared)
        for way, sizes in ways.items()
        for size in sizes
    ]
    rising = {"learning_rate_rule": "linear", "rate_warmup_epochs": warmup_epochs, "epochs": epochs}
    also: list[tuple[dict[str, Any], Sequence[int]]] = [(rising, linear)]
    also += [({"updates": updates}, updated if updates else ())]
    also += [({"framework": "tensorflow", "epochs": epochs}, tensorflow)]
    for fields, sizes in also:
        jobs += [trained(next(iter(ways)), "learning", global_batch_size=size, **shared | fields) for size in sizes]
    return jobs


def accuracy_cells(
    use_cases: Sequence[str],
    networks: Iterable[str],
    ways: Mapping[str, Mapping[str, Sequence[int]]],
    *,
    further: Sequence[str] = (),
    epochs: int,
    **more: Any,
) -> list[Job]:
    """`learning_cells` of all use cases and networks. `ways`: of each network, as there; `more`: its other arguments.

    `further`: use cases in which that is all trained (none named: in all); in the others only the first way, at all its
    batch sizes. Raises JobError for one that is not among `use_cases`, and for a network without ways.
    """
    if unknown := set(further) - set(use_cases):
        raise JobError(f"further={list(further)}: {sorted(unknown)} are not among the use cases {list(use_cases)}")
    jobs = []
    for network in networks:
        if not ways.get(network):
            raise JobError(f"ways has none of {network!r}, only of: {', '.join(ways)}; name its ways and batch sizes")
        first = dict(list(ways[network].items())[:1])
        for use_case in use_cases:
            if not further or use_case in further:
                jobs += learning_cells(use_case, network, ways[network], epochs=epochs, **more)
            else:
                jobs += learning_cells(use_case, network, first, epochs=epochs)
    return jobs


def finalists_of(
    candidates: Mapping[str, Setting], finalists: Mapping[str, Sequence[str]], network: str
) -> dict[str, Setting]:
    """The settings of a network's finalists by name, in their order. Raises JobError where there is none, or where a
    name is no candidate's."""
    names = finalists.get(network)
    if isinstance(names, str) or not names:
        raise JobError(f"finalists has {names!r} for {network!r}; give a list of candidates: {', '.join(candidates)}")
    if unknown := [name for name in names if name not in candidates]:
        raise JobError(f"finalist {unknown[0]!r} of {network} is no candidate; there are: {', '.join(candidates)}")
    return {name: candidates[name] for name in names}


def candidate_cells(
    use_case: str, network: str, settings: Mapping[str, Setting], finalists: Sequence[str], *, way: str, epochs: int
) -> list[Job]:
    """Every setting on held-out training images, and the `finalists` again, marked `selected`: on all training images,
    unless they stop early and need the held-out ones, too. The setting with the highest accuracy on held-out images
    is quoted if it is a finalist.

    Settings with batch normalisation are trained by one worker: several would train other parameters. Raises JobError
    for a finalist that is no candidate.
    """
    names = set(finalists_of(settings, {network: finalists}, network)) if finalists else set()
    shared: dict[str, Any] = {"use_case": use_case, "network": network}
    jobs = []
    for name, setting in settings.items():
        whole = shared | _whole(setting, epochs)
        by = "sequential" if setting.get("batch_norm") else way
        jobs.append(trained(by, "candidates", scored_on="validation", **whole))
        if name in names:
            on = "validation" if whole.get("early_stopping_epochs") else "test"
            jobs.append(trained(by, "selected", scored_on=on, selected=True, **whole))
    return jobs


def _whole(setting: Setting, epochs: int) -> dict[str, Any]:
    """A setting with its length: updates of its own, epochs of its own, or those of all."""
    return dict(setting) if "updates" in setting else {"epochs": epochs, **setting}


def ablation_cells(
    use_case: str, network: str, pooling: Iterable[str], dropout: Iterable[float], *, way: str, **fields: Any
) -> list[Job]:
    """Each kind of pooling with each share of dropout; `fields`: how long, and on how many images."""
    levels = [float(level) for level in dropout]
    shared: dict[str, Any] = {"use_case": use_case, "network": network, "scored_on": "test", **fields}
    return [trained(way, "ablation", pooling=kind, dropout=level, **shared) for kind in pooling for level in levels]


def paired_cells(
    use_case: str, network: str, ways: Mapping[str, Sequence[int]], *, setting: Setting, epochs: int
) -> list[Job]:
    """The same training by one worker, and by strategies with their numbers of workers."""
    shared = {"use_case": use_case, "network": network, "scored_on": "test", **_whole(setting, epochs)}
    if shared.get("early_stopping_epochs"):
        shared["scored_on"] = "validation"
    jobs = [trained("sequential", "paired", workers=1, **shared)]
    return jobs + [trained(way, "paired", workers=count, **shared) for way, counts in ways.items() for count in counts]


def speed_cells(
    use_case: str,
    network: str,
    batch_sizes: Iterable[int],
    strategies: Iterable[str],
    *,
    images: int = 512,
    warmup_steps: int = WARMUP_STEPS,
    tensorflow: Iterable[str] = (),
    paired: bool = True,
) -> list[Job]:
    """Timed steps of sequential training and of `strategies`, ranks being ipyparallel engines where they are no
    pipeline of one process, and `tensorflow`'s; as many steps as take about `images` images, at least 2.

    `paired`: the sequential cell of each framework stands twice at the smallest and at the largest batch.
    """
    jobs = []
    sizes = sorted(batch_sizes)
    for size in sizes:
        clock = {"steps": max(2, images // size), "warmup_steps": warmup_steps, "input": "memory"}
        shared: dict[str, Any] = {"use_case": use_case, "network": network, "global_batch_size": size, **clock}
        for framework, names in (("torch", strategies), ("tensorflow", tensorflow)):
            names = list(names)
            both = "ab" if paired and size in (sizes[0], sizes[-1]) else "a"
            if framework == "torch" or names:
                jobs += [
                    trained("sequential", "speed", workers=1, framework=framework, variant=half, **shared)
                    for half in both
                ]
            jobs += [
                trained(name, "speed", framework=framework, **_engines(name), **shared | _window(name, shared["steps"]))
                for name in names
                if name != "sequential"
            ]
    return jobs


def _window(strategy: str, steps: int) -> dict[str, int]:
    """Of what exchanges now and then: as many measured steps as lie between two exchanges, after whole such spans."""
    if STRATEGIES[strategy].fields.get("exchange_every", 1) == 1:
        return {}
    return {"exchange_every": steps, "warmup_steps": steps * -(-WARMUP_STEPS // steps)}


def _engines(strategy: str) -> dict[str, Any]:
    """Ways that any ranks can take run on ipyparallel engines; others name their launcher."""
    return (
        {"launcher": "engines"}
        if STRATEGIES[strategy].fields["launcher"] == SYNC_LAUNCHER and strategy not in _OWN
        else {}
    )


def price_cells(use_case: str, batch_size: int, *, dropout: float, weight_decay: float, images: int = 512) -> list[Job]:
    """What regularisation costs: sequential steps of the CNN with dropout, and with L2."""
    clock = {"steps": max(2, images // batch_size), "warmup_steps": WARMUP_STEPS, "input": "memory"}
    shared: dict[str, Any] = {"use_case": use_case, "network": "cnn", "global_batch_size": batch_size, **clock}
    return [
        trained("sequential", "speed", workers=1, **shared | {name: value})
        for name, value in (("dropout", dropout), ("weight_decay", weight_decay))
        if value
    ]


def profile_cells(
    use_case: str,
    networks: Iterable[str],
    batch_size: int,
    frameworks: Iterable[str],
    *,
    warmup_steps: int = WARMUP_STEPS,
) -> list[Job]:
    """One step of sequential training under the profiler of each framework."""
    clock = {"steps": 1, "warmup_steps": warmup_steps, "input": "memory"}
    shared: dict[str, Any] = {"use_case": use_case, "global_batch_size": batch_size, "workers": 1, **clock}
    frameworks = list(frameworks)
    return [
        trained("sequential", "profile", network=network, framework=framework, **shared)
        for network in networks
        for framework in frameworks
    ]


def laid_out(jobs: Iterable[Job], memory_format: str, images: int = 0) -> list[Job]:
    """The same cells, torch's with images in that memory format, on at most `images` training images (0: all).

    TensorFlow lays images out as it likes: a job can't ask it for another format.
    """
    found = []
    for job in jobs:
        fewer = min(job.images, images) if job.images and images else job.images or images
        kept = memory_format if job.framework == "torch" else job.memory_format
        found.append(job.with_(memory_format=kept, images=fewer))
    return found
