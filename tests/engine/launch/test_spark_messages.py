"""What is said of a Spark cluster that has ended, and why."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.engine.launch.spark.cluster import StandaloneCluster, explained


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        ("its supervisor was killed by SIGKILL", "the Spark cluster ended: its supervisor was killed by SIGKILL"),
        ("worker left with 1", "the Spark worker left with 1"),
        ("", "the Spark cluster ended"),
    ],
)
def test_the_end_of_a_cluster_is_a_sentence(cause: str, said: str) -> None:
    """"the Spark its guard was killed" was one."""
    cluster = StandaloneCluster(1)
    supervisor: Any = SimpleNamespace(cause_of_end=lambda: cause, ended=lambda: True, output=io.BytesIO(b"no more"))
    cluster._supervisor = supervisor
    assert cluster.problem() == said


def test_a_master_that_does_not_answer_may_ask_for_a_secret() -> None:
    assert explained("Application has been killed. Reason: All masters are unresponsive! Giving up.") == (
        "the master may ask for a secret; give it in the environment variable _SPARK_AUTH_SECRET"
    )
