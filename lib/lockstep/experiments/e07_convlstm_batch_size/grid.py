"""Notebook 07's cells: those that train until they have learnt, and those whose steps are timed.

learning     ways to train x batch sizes, at equal epochs; the linear rule; equal updates; TensorFlow
candidates   settings, scored on held-out training images alone: no test image is opened before one is chosen
selected     finalists among them, trained anew on all training images if they need no held-out ones
paired       one setting and seed by one worker and by several
ablation     pooling x dropout
heads        the LSTM beside what could read the features in its place
scores       settings of which every image's score is stored
speed        steps of all ways and both frameworks, from memory; what dropout and L2 add to a step
profile      a step of each framework, operator by operator

Where workers share a step, its global batch stays as it is: the parameters that come out are those of one worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lockstep.engine.job import Job, JobError
from lockstep.engine.job.strategies import STRATEGIES, SYNC_LAUNCHER
from lockstep.experiments.e07_convlstm_batch_size.head_cells import head_cells
from lockstep.experiments.e07_convlstm_batch_size.score_cells import score_cells
from lockstep.experiments.experiment import Parameters
from lockstep.experiments.fixed_batch import in_memory_format, trained
from lockstep.records.places import repository_root
from lockstep.tuning.setting_file import read_setting

WARMUP_STEPS = 4
"""Of a timed cell: in the first three a worker's heap still grows, and page faults would be in what is measured."""
WAY = "processes"
"""Trains everything whose parameters do not depend on the way: it is the quickest."""
FRAMEWORKS = ("torch", "tensorflow")
TUNED = "tuned"
"""The name of the candidate that a file holds."""
Setting = Mapping[str, Any]
_OWN_PROCESSES = ("processes", "processes_allreduce", "ddp")
"""Strategies that are about processes which nobody but this library starts."""
SAME: tuple[str, ...] = ("experiment", "use_case", "framework", "network", "global_batch_size", "pooling", "dropout")
SAME += ("weight_decay", "batch_norm", "standardise", "device", "precision", "input")
"""What a timed cell shares with the sequential one that it is held against."""


def cells(chosen: Parameters) -> list[Job]:
    """Every cell of the notebook, in the order of its records."""
    first = chosen.use_cases[0]
    jobs = accuracy_cells(chosen)
    levels = chosen.part("ablation", "pooling"), chosen.part("ablation", "dropout")
    for network in chosen.compared:
        jobs += ablation_cells(first, network, *levels, way=WAY, epochs=chosen.epochs, images=chosen.ablation_images)
        candidates, own = with_tuned(chosen.candidates, chosen.finalists, chosen.tuned, network)
        names = list(finalists_of(candidates, own, network))
        jobs += candidate_cells(first, network, candidates, names, way=WAY, epochs=chosen.epochs)
    for network, ways in chosen.paired.items():
        finalists = finalists_of(chosen.candidates, chosen.finalists, network)
        setting = {**next(iter(finalists.values())), "epochs": chosen.paired_epochs}
        jobs += paired_cells(first, network, ways, setting=setting, epochs=chosen.paired_epochs)
    heads = {name: chosen.part("heads", name) for name in ("names", "batch_sizes", "tuned", "learning_rates")}
    jobs += head_cells(first, **heads, way=WAY, epochs=chosen.epochs, updates=chosen.updates)
    jobs += score_cells(chosen, WAY)
    for use_case in chosen.speed_use_cases:
        for network in chosen.networks:
            jobs += speed_cells(
                use_case, network, chosen.speed_batch_sizes, chosen.strategies,
                images=chosen.speed_images, tensorflow=chosen.tensorflow_strategies,
            )  # fmt: skip
    jobs += profile_cells(first, chosen.part("profiled", "networks"), chosen.part("profiled", "batch_size"))
    prices = {name: chosen.part("prices", name) for name in ("dropout", "weight_decay")}
    jobs += price_cells(first, min(chosen.speed_batch_sizes), **prices, images=chosen.speed_images)
    return in_memory_format(at_most(chosen.training_images, jobs), chosen.memory_format)


def at_most(images: int, jobs: Iterable[Job]) -> list[Job]:
    """The same cells on at most so many training images; 0: on as many as they have."""
    found = []
    for job in jobs:
        fewer = min(job.images, images) if job.images and images else job.images or images
        found.append(job.with_(images=fewer))
    return found


def accuracy_cells(chosen: Parameters) -> list[Job]:
    """Accuracy against batch size, of all use cases and networks.

    In the use cases that `further` names (none named: in all) everything is trained; in the others only the first way,
    at all its batch sizes. Raises JobError for one that is not among `use_cases`, and for a network without ways.
    """
    if unknown := set(chosen.further) - set(chosen.use_cases):
        raise JobError(
            f"further={list(chosen.further)}: {sorted(unknown)} are not among the use cases {list(chosen.use_cases)}"
        )
    jobs = []
    for use_case in chosen.use_cases:
        for network in chosen.networks:
            if not chosen.ways.get(network):
                raise JobError(
                    f"ways has none of {network!r}, only of: {', '.join(chosen.ways)}; name its ways and batch sizes"
                )
            if not chosen.further or use_case in chosen.further:
                jobs += _all_ways(chosen, use_case, network)
            else:
                way, sizes = next(iter(chosen.ways[network].items()))
                jobs += learning_cells(use_case, network, way, sizes, epochs=chosen.epochs)
    return jobs


def _all_ways(chosen: Parameters, use_case: str, network: str) -> list[Job]:
    """At equal epochs by every way; by the first of them also with the linear rule, at equal updates and with
    TensorFlow: other ways train the same parameters."""
    jobs = []
    for way, sizes in chosen.ways[network].items():
        jobs += learning_cells(use_case, network, way, sizes, epochs=chosen.epochs)
    first = next(iter(chosen.ways[network]))
    rising = {"learning_rate_rule": "linear", "rate_warmup_epochs": chosen.rate_warmup_epochs}
    jobs += learning_cells(use_case, network, first, chosen.linear_batch_sizes, epochs=chosen.epochs, **rising)
    if chosen.updates:
        jobs += learning_cells(use_case, network, first, chosen.updates_batch_sizes, updates=chosen.updates)
    with_keras = {"epochs": chosen.epochs, "framework": "tensorflow"}
    jobs += learning_cells(use_case, network, first, chosen.tensorflow_batch_sizes, **with_keras)
    return jobs


def learning_cells(use_case: str, network: str, way: str, batch_sizes: Iterable[int], **fields: Any) -> list[Job]:
    """One way to train at each of these batch sizes; `fields`: how long, and what else differs from Table 2."""
    shared = {"use_case": use_case, "network": network, "scored_on": "test", **fields}
    return [trained(way, "learning", global_batch_size=size, **shared) for size in batch_sizes]


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
    jobs = []
    for name, setting in settings.items():
        whole = {"use_case": use_case, "network": network, **_with_length(setting, epochs)}
        by = "sequential" if setting.get("batch_norm") else way
        jobs.append(trained(by, "candidates", scored_on="held_out", **whole))
        if name in names:
            jobs.append(trained(by, "selected", scored_on=_scored_on(whole), selected=True, **whole))
    return jobs


def _with_length(setting: Setting, epochs: int) -> dict[str, Any]:
    """A setting with its length: updates of its own, epochs of its own, or those of all."""
    return dict(setting) if "updates" in setting else {"epochs": epochs, **setting}


def _scored_on(setting: Setting) -> str:
    """What stops early needs held-out images; everything else is trained on all of them."""
    return "validation" if setting.get("early_stopping_epochs") else "test"


def with_tuned(
    candidates: Mapping[str, Setting], finalists: Mapping[str, Sequence[str]], path: str, network: str
) -> tuple[Mapping[str, Setting], Mapping[str, Sequence[str]]]:
    """Candidates and finalists with the setting of a file that notebook 09 wrote, if it is of this network; "": as
    they are. Raises JobError for a file that holds no setting."""
    setting = read_setting(repository_root() / path) if path else {}
    if setting.pop("network", "") != network:
        return candidates, finalists
    return {**candidates, TUNED: setting}, {**finalists, network: [*finalists.get(network, ()), TUNED]}


def ablation_cells(
    use_case: str, network: str, pooling: Iterable[str], dropout: Iterable[float], *, way: str, **fields: Any
) -> list[Job]:
    """Each kind of pooling with each share of dropout; without pooling a CNN alone, for an LSTM would read too many
    positions. `fields`: how long, and on how many images."""
    pooling = [kind for kind in pooling if kind != "none" or network == "cnn"]
    shares = [float(share) for share in dropout]
    shared: dict[str, Any] = {"use_case": use_case, "network": network, "scored_on": "test", **fields}
    return [trained(way, "ablation", pooling=kind, dropout=share, **shared) for kind in pooling for share in shares]


def paired_cells(
    use_case: str, network: str, ways: Mapping[str, Sequence[int]], *, setting: Setting, epochs: int
) -> list[Job]:
    """The same training by one worker, and by strategies with their numbers of workers."""
    whole = _with_length(setting, epochs)
    shared = {"use_case": use_case, "network": network, "scored_on": _scored_on(whole), **whole}
    jobs = [trained("sequential", "paired", workers=1, **shared)]
    for way, counts in ways.items():
        for count in counts:
            jobs.append(trained(way, "paired", workers=count, **shared))
    return jobs


def speed_cells(
    use_case: str,
    network: str,
    batch_sizes: Iterable[int],
    strategies: Iterable[str],
    *,
    images: int = 512,
    tensorflow: Iterable[str] = (),
) -> list[Job]:
    """Timed steps of sequential training and of `strategies`, and of `tensorflow`'s if there are any.

    With torch two cells stand twice, as A/A pairs: at the smallest batch the sequential one, at larger ones (or the
    only one) that of the first strategy with several workers.
    """
    jobs = []
    sizes = sorted(batch_sizes)
    by_framework = {"torch": list(strategies), "tensorflow": list(tensorflow)}
    for size in sizes:
        shared = _timed_steps(use_case, network, size, images)
        for framework, names in by_framework.items():
            if framework == "tensorflow" and not names:
                continue
            own = [_timed_cell("sequential", framework, shared, workers=1)]
            own += [_timed_cell(name, framework, shared) for name in names if name != "sequential"]
            twice = [*own[:1][: size == sizes[0]], *own[1:2][: size != sizes[0] or len(sizes) == 1]]
            twice = twice if framework == "torch" else []
            jobs += [*own, *(job.with_(variant="b") for job in twice)]
    return jobs


def _timed_cell(strategy: str, framework: str, shared: Mapping[str, Any], **fields: Any) -> Job:
    own = {**shared, **_launched(strategy), **_whole_spans(strategy, shared["steps"]), **fields}
    return trained(strategy, "speed", framework=framework, **own)


def _timed_steps(use_case: str, network: str, batch_size: int, images: int) -> dict[str, Any]:
    """As many steps as take about so many images, at least 2, from memory."""
    clock = {"steps": max(2, images // batch_size), "warmup_steps": WARMUP_STEPS, "input": "memory"}
    return {"use_case": use_case, "network": network, "global_batch_size": batch_size, **clock}


def _whole_spans(strategy: str, steps: int) -> dict[str, int]:
    """Of what exchanges now and then: as many measured steps as lie between two exchanges, after whole such spans."""
    if STRATEGIES[strategy].fields.get("exchange_every", 1) == 1:
        return {}
    return {"exchange_every": steps, "warmup_steps": steps * -(-WARMUP_STEPS // steps)}


def _launched(strategy: str) -> dict[str, Any]:
    """Strategies that any launcher can run take ipyparallel engines; the others name their own launcher."""
    anywhere = STRATEGIES[strategy].fields["launcher"] == SYNC_LAUNCHER and strategy not in _OWN_PROCESSES
    return {"launcher": "engines"} if anywhere else {}


def price_cells(use_case: str, batch_size: int, *, dropout: float, weight_decay: float, images: int = 512) -> list[Job]:
    """What regularisation costs: sequential steps of the CNN with dropout, and with L2; 0 leaves one out."""
    shared = _timed_steps(use_case, "cnn", batch_size, images)
    jobs = []
    if dropout:
        jobs.append(trained("sequential", "speed", workers=1, dropout=dropout, **shared))
    if weight_decay:
        jobs.append(trained("sequential", "speed", workers=1, weight_decay=weight_decay, **shared))
    return jobs


def profile_cells(use_case: str, networks: Iterable[str], batch_size: int) -> list[Job]:
    """One step of sequential training under the profiler of each framework."""
    jobs = []
    for network in networks:
        shared = _timed_steps(use_case, network, batch_size, images=0) | {"steps": 1}
        for framework in FRAMEWORKS:
            jobs.append(trained("sequential", "profile", workers=1, framework=framework, **shared))
    return jobs
