"""What an answer says of a claim that all claims together leave undecided."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lockstep.analysis.judging import not_enough
from lockstep.analysis.verdicts import Verdict
from lockstep.experiments.answering import _headline, answer_text, left_open
from lockstep.experiments.catalogue import Notebook
from lockstep.experiments.report import Answered
from stored_reference import stored_reference

NAME = "06_spark_distribution"


def answered(root: Path, found: Verdict) -> Answered:
    stored = stored_reference(root / "results" / "reference" / NAME)
    return Answered(Notebook(NAME), lambda: stored, [({"id": "s2m-spark-slows-simplebig"}, found)])


def test_an_answer_is_no_flatter_than_the_claim_it_rests_on(root: Path) -> None:
    """Bug: "SparkNet is slower than one core for AlexNet", while Holm's correction leaves that claim undecided."""
    some = answered(root, not_enough(Verdict("supported", reason="it is"), 90))
    open_claim = "; whether SparkNet is slower than one core for AlexNet would be decided if it were the only claim, "
    open_claim += "but is not when all claims are judged together"
    title = _headline(some)
    assert f"{open_claim}. " in answer_text(some) and title.endswith(open_claim)
    assert title.startswith("With eight images per worker, SparkNet ") and "; Spark barrier" in title
    for found in (Verdict("supported"), Verdict("undecided", reason="too few rounds")):
        assert left_open(replace(some, judged=[(some.judged[0][0], found)])) == ""
        assert "judged together" not in answer_text(answered(root, found))
