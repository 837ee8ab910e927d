"""What a notebook's parameters can't be: of another shape than their defaults, or such that no grid comes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from lockstep.engine.job import Job, JobError

if TYPE_CHECKING:  # pandas, for which a refusal does not wait
    from lockstep.experiments.experiment import Parameters


def unlike(value: Any, example: Any, place: str = "") -> str:
    """Where `value` is of another type than `example`, in words such as "['SimpleBig'] is 'two', not int"; else "".

    Elements of a list are like one of the example's; entries of a dict like the one of that name, else like one of
    them, where all are of one type. An empty list or dict says nothing of what may be in it.
    """
    if not _same_type(value, example):
        return f"{place or 'it'} is {value!r}, not {type(example).__name__}"
    if value != value:
        return f"{place or 'it'} is {value!r}, not a number"
    if isinstance(value, int | float) and not 0 <= value < float("inf"):
        return f"{place or 'it'} is {value!r}, and no parameter is negative or infinite"
    if isinstance(example, list) and example:
        return _first(_like_any(each, example, f"{place}[{number}]") for number, each in enumerate(value))
    if isinstance(example, dict) and example:
        return _first(_entry(name, each, example, place) for name, each in value.items())
    return ""


def _entry(name: Any, value: Any, example: dict[Any, Any], place: str) -> str:
    here = f"{place}[{name!r}]"
    if name in example:
        return unlike(value, example[name], here)
    if not _same_type(name, next(iter(example))):
        return f"{here} is named by {type(name).__name__}, not by {type(next(iter(example))).__name__}"
    one_type = len({type(each) for each in example.values()}) == 1
    return _like_any(value, list(example.values()), here) if one_type else ""


def _like_any(value: Any, examples: list[Any], place: str) -> str:
    found = [unlike(value, each, place) for each in examples]
    return "" if "" in found else found[0]


def _same_type(value: Any, example: Any) -> bool:
    if isinstance(value, bool) or isinstance(example, bool):
        return type(value) is type(example)
    return isinstance(value, int | float if isinstance(example, float) else type(example))


def _first(found: Iterable[str]) -> str:
    return next((each for each in found if each), "")


def cells_of(
    grid: Callable[[Parameters], list[Job]], chosen: Parameters, defaults: Mapping[str, Any], place: str
) -> list[Job]:
    """The cells that these parameters ask for. Raises JobError for parameters of which none can be made, which names
    the one to blame: with its default there is a grid.

    Parameters without a default here are never to blame. An error that the defaults bring too is a bug, and is raised
    as it is.
    """
    try:
        return grid(chosen)
    except Exception as error:
        if type(error).__module__.startswith("lockstep."):
            raise  # it says what is wrong
        changed = {name: value for name, value in vars(chosen).items() if value != defaults.get(name, value)}
        guilty = [name for name in changed if _works(grid, chosen, {name: defaults[name]})]
        if not guilty and not _works(grid, chosen, {name: defaults[name] for name in changed}):
            raise
        told = ", ".join(f"{name}={changed[name]!r}" for name in (guilty or changed))
        like = ", ".join(f"{name}={defaults[name]!r}" for name in (guilty or changed))
        raise JobError(
            f"{place}: no cells can be made of {told} ({type(error).__name__}: {error}); give a value like "
            f"the default, {like}"
        ) from error


def _works(grid: Callable[[Parameters], list[Job]], chosen: Parameters, other: Mapping[str, Any]) -> bool:
    try:
        grid(type(chosen)(**{**vars(chosen), **other}))
    except Exception:
        return False
    return True


def above_zero(name: str, chosen: Mapping[str, Any], otherwise: float) -> float:
    """The number of that name, by which others are divided. Raises JobError for 0."""
    value: float = chosen.get(name, otherwise)
    if not value > 0:
        raise JobError(f"{name}={value!r} is not possible; give a number above 0")
    return value
