"""How every command ends: with 2 if it is refused before anything is done, 1 if it fails, 128 + n after signal n."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import typer
from rich.console import Console
from rich.text import Text

from lockstep.commands.runner.errors import RunError, RunFailed, Stopped


@contextlib.contextmanager
def clear_ends() -> Iterator[None]:
    """Our own errors end a command with one message and no traceback; anything else is a bug and shows one.

    As a decorator, `@clear_ends()`, it does so for a whole command.
    """
    try:
        yield
    except Stopped as error:
        raise _end(f"stopped by {error}; no process of the run is left", error.exit_code) from error
    except KeyboardInterrupt as error:
        raise _end("stopped by SIGINT", 130) from error
    except RunError as error:
        raise _end(_lines(f"refused: {error}"), 2) from error
    except RunFailed as error:
        raise _end(Text.from_ansi(str(error)), 1) from error  # a traceback has colours
    except ValueError as error:
        if not _is_ours(error):
            raise
        raise _end(_lines(f"error: {error}"), 1) from error


@contextlib.contextmanager
def checking_arguments() -> Iterator[None]:
    """Within it nothing is done yet, so any error of ours is a refusal. Raises RunError."""
    try:
        yield
    except ValueError as error:
        if not _is_ours(error):
            raise
        raise RunError(str(error)) from error


def printable(text: str) -> str:
    """A name as it can be shown: what a terminal would obey, or what is no text at all, as an escape sequence."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def _is_ours(error: ValueError) -> bool:
    return type(error).__module__.startswith("lockstep.")


def _lines(message: str) -> str:
    return "\n".join(printable(line) for line in message.split("\n"))


def _end(message: str | Text, code: int) -> typer.Exit:
    Console(stderr=True).print(message, highlight=False, markup=False, soft_wrap=True)
    return typer.Exit(code)
