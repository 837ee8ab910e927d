"""Options as one text: `markov:slow=3,enter=0.01` is a name with options, `k=6,forecast=ar` options alone.

Such a text is one field of a job and one column of the records, where the same options must be the same text. So there
is a canonical one: options in the order of their fields, defaults left out, numbers as short as they can be written.

The options are a frozen dataclass whose fields are declared with `lockstep.engine.options.option`, so types, bounds and
help stand there once:

    @dataclass(frozen=True)
    class Options:
        slow: float = option(3.0, "times as long as usual", least=1)

    parse_options("slow=4", Options, "delays='markov:slow=4'")         # Options(slow=4.0)
    options_text(Options(slow=4.0))                                    # 'slow=4'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from lockstep.engine.options import JobError, Option, options_of


@dataclass(frozen=True)
class NoOptions:
    """The options of what has none."""


AnyOptions = TypeVar("AnyOptions")
_TRUTH = {"true": True, "false": False}
_READERS: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": lambda text: _TRUTH[text.lower()],
}


def parse_options(text: str, kind: type[AnyOptions], place: str) -> AnyOptions:
    """`key=value,...` as an instance of the dataclass `kind`; an empty text gives all defaults.

    `place` begins every message and says where the text stands. Raises JobError, which names the key, the value and
    what is allowed: for a key that does not exist or stands twice, a value of another type, out of its bounds or not
    finite, and for what `kind` itself refuses.
    """
    declared = options_of(kind)
    values: dict[str, Any] = {}
    try:
        for item in text.split(",") if text.strip() else ():
            key, given, raw = (part.strip() for part in item.partition("="))
            _check_key(key, given, item, declared, values)
            values[key] = _value(declared[key], raw)
        return kind(**values)
    except JobError as error:
        raise JobError(f"{place}: {error}") from None


def options_text(options: Any) -> str:
    """The canonical text of an instance: `key=value,...` of all that is not the default; may be empty."""
    values = {name: (getattr(options, name), option.default) for name, option in options_of(options).items()}
    return ",".join(f"{name}={_text(value)}" for name, (value, default) in values.items() if value != default)


def parse_named(text: str, kinds: Mapping[str, type[Any]], place: str) -> tuple[str, Any]:
    """`name` or `name:key=value,...` as the name and the options of `kinds[name]`.

    Raises JobError as `parse_options` does, and for a name that does not exist.
    """
    name, _, rest = text.partition(":")
    name = name.strip()
    if name not in kinds:
        raise JobError(f"{place}={text!r}: {name!r} does not exist; there are: {', '.join(sorted(kinds))}")
    return name, parse_options(rest, kinds[name], f"{place}={text!r}")


def named_text(name: str, options: Any) -> str:
    """The canonical text of a name with its options: the name alone where all have their defaults."""
    text = options_text(options)
    return f"{name}:{text}" if text else name


def _check_key(key: str, given: str, item: str, declared: Mapping[str, Option], values: Mapping[str, Any]) -> None:
    if key not in declared:
        there_are = f"there are: {', '.join(declared)}" if declared else "it has no options"
        raise JobError(f"option {key!r} does not exist; {there_are}")
    if not given:
        raise JobError(f"{item.strip()!r} has no value; write {key}={_text(declared[key].default) or '...'}")
    if key in values:
        raise JobError(f"{key} stands there twice; give it once")


def _value(option: Option, raw: str) -> Any:
    """The value of the type of the option's default, checked."""
    try:
        value = _READERS[option.kind](raw)
    except (ValueError, KeyError):
        raise JobError(f"{option.name}={raw!r} is not possible; give {option.allowed}") from None
    option.check(value)
    return value


def _text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)
