"""Optuna, which only tuning needs: loaded when a study is opened, and told to be quiet."""

from __future__ import annotations

import warnings
from typing import Any


class StudyError(ValueError):
    """A study that can't be opened or can't go on; the message names the file or the value, and the fix."""


def the_optuna() -> Any:
    """The module `optuna`. Raises StudyError where it is not installed."""
    try:
        import optuna
    except ImportError as error:
        raise StudyError(
            f"tuning needs Optuna, which can't be loaded ({error}): pip install 'lockstep[tune]'"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # Heartbeats are experimental since version 2.9; and a study that is asked for trials keeps them itself.
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    warnings.filterwarnings("ignore", message="Heartbeat of storage is supposed to be used with Study.optimize")
    return optuna
