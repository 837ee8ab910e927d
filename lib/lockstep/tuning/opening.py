"""A study is opened: made, or found again and compared with what is asked for."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.engine.data.readable_cache import cache_folder
from lockstep.engine.own.identity import content_hash
from lockstep.engine.training.loop import Site
from lockstep.engine.usecases import use_case
from lockstep.tuning.needed import StudyError, the_optuna
from lockstep.tuning.plan import Identity, StudyPlan
from lockstep.tuning.storage import check_file, open_storage, shown, sqlite_file, storage_errors, storage_url

_IDENTITY = ("version", "data")


def open_study(plan: StudyPlan, storage: str | os.PathLike[str], site: Site | None = None) -> Any:
    """The Optuna study of this plan, made if there is none of its name.

    storage: a file of SQLite, or the URL of a server. Raises StudyError for a storage that can't be used, and for a
    study of that name with another plan, other images or another version of Lockstep, with every difference; JobError
    for a plan that can't be trained; DataError for images that can't be read.
    """
    url = storage_url(storage)
    plan.check()
    if (path := sqlite_file(url)) is not None:
        check_file(path)
    identity = Identity(plan, data_of(plan, site or Site()))
    with alone_on_host(url), storage_errors(url):
        return _made_or_found(identity, url)


def _made_or_found(identity: Identity, url: str) -> Any:
    optuna, plan = the_optuna(), identity.plan
    opened = open_storage(url)
    try:
        study = optuna.create_study(
            storage=opened, study_name=plan.name, direction="maximize", load_if_exists=True,
            sampler=optuna.samplers.RandomSampler(), pruner=optuna.pruners.NopPruner(),
        )  # fmt: skip
        stored = study.user_attrs
        if "plan" in stored:
            identity.check(
                {"plan": json.loads(stored["plan"])} | {name: stored[name] for name in _IDENTITY}, shown(url)
            )
        elif study.get_trials(deepcopy=False):
            raise StudyError(f"{shown(url)} holds a study {plan.name!r} that is not Lockstep's; give another name")
        for name in _IDENTITY:
            study.set_user_attr(name, identity.stored()[name])
        study.set_user_attr("plan", plan.to_json())  # last: who finds it finds the rest
        _enqueue(study, plan)
    except BaseException:
        opened.engine.dispose()
        raise
    return study


@contextlib.contextmanager
def alone_on_host(url: str) -> Iterator[None]:
    """A context that one process, or thread, of this host is in at a time for each storage: two that make one file of
    SQLite would both make its tables, and two that ask it for a trial would get the same one. Raises StudyError where
    the folder of checkpoints, which is what is locked, can't be."""
    folder = folder_of(url, "").parent
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(folder, os.O_RDONLY)
        except (FileExistsError, FileNotFoundError, NotADirectoryError):
            if (other := _in_the_way(folder)) is not None:
                raise StudyError(f"{folder} is to hold checkpoints, but {other} is no folder; move it away") from None
            continue  # who had it removed it, perhaps while mkdir looked at it
        fcntl.flock(handle, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):  # who had it before may have removed it
            if os.path.samestat(os.fstat(handle), os.stat(folder)):
                break
        os.close(handle)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()  # it holds checkpoints, unless no study has any
        os.close(handle)


def _in_the_way(folder: Path) -> Path | None:
    """What is no folder, of `folder` and those that it lies in: a file, or a link that leads nowhere."""
    for place in (folder, *folder.parents):
        try:
            return None if stat.S_ISDIR(place.stat().st_mode) else place
        except OSError:
            if place.is_symlink():
                return place
    return None


def found_study(storage: str | os.PathLike[str], name: str | None = None) -> tuple[Any, StudyPlan]:
    """A study that there is, and its plan; `name` may be left out where the storage holds one. Raises StudyError."""
    url = storage_url(storage)
    path = sqlite_file(url)
    if path is not None and not path.is_file():
        raise StudyError(f"storage {path} does not exist; name the one that `lockstep tune` has written")
    if path is not None:
        check_file(path)
    optuna, opened = the_optuna(), open_storage(url)
    with storage_errors(url):
        names = [each.study_name for each in optuna.get_all_study_summaries(opened, include_best_trial=False)]
        if name is None and len(names) == 1:
            name = names[0]
        if name not in names:
            there = f"it holds: {', '.join(map(repr, names))}" if names else "it holds none"
            raise StudyError(f"{shown(url)}: which study? {there}" if name is None else f"no study {name!r}; {there}")
        study = optuna.load_study(study_name=name, storage=opened)
        if "plan" not in study.user_attrs:
            raise StudyError(f"{shown(url)} holds a study {name!r} that is not Lockstep's")
        return study, StudyPlan.from_json(study.user_attrs["plan"])


def close_study(study: Any) -> None:
    """Close this thread's connections to the storage, so that no file of SQLite stays open."""
    study._storage.remove_session()
    study._storage._backend.engine.dispose()


def folder_of(url: str, name: str) -> Path:
    """Where the checkpoints of a study's trials are on this host: beside SQLite's file, else in the user's cache."""
    slug = hashlib.sha256(f"{url} {name}".encode()).hexdigest()[:12]
    path = sqlite_file(url)
    if path is None:
        return cache_folder() / "trials" / slug
    return path.with_name(f"{path.name}.trials") / slug


def data_of(plan: StudyPlan, site: Site) -> dict[str, Any]:
    """What tells the training images from others: their classes and counts, and a hash of names or numbers."""
    case = (site.use_case or use_case(plan.base.use_case)).for_job(plan.placed)
    images = case.open("train", site.data_root, plan.base.images, site.skipped)
    counts = np.bincount(images.labels, minlength=len(images.classes))
    return {
        "source": images.source, "images": len(images), "hash": content_hash(images),
        "classes": {name: int(count) for name, count in zip(images.classes, counts, strict=True)},
    }  # fmt: skip


def _enqueue(study: Any, plan: StudyPlan) -> None:
    """Put those settings of a fixed list into the queue that are not in the study yet, in their order."""
    there = len([each for each in study.get_trials(deepcopy=False) if "place" in each.user_attrs])
    for place, setting in list(enumerate(plan.settings))[there:]:
        study.enqueue_trial(plan.space.parameters(setting), user_attrs={"place": place})
