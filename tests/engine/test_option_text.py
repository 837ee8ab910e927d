"""Options as one text: there, back, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from lockstep.engine.option_text import named_text, options_text, parse_named, parse_options
from lockstep.engine.options import JobError, choice, option


@dataclass(frozen=True)
class Example:
    k: int = option(2, "workers", least=1)
    share: float = option(0.5, "a share", above=0, most=1)
    forecast: str = choice("last", "ar", "lstm")
    file: str = option("", "a file")
    shared: bool = option(False, "one for all")

    def __post_init__(self) -> None:
        if self.k > 100:
            raise JobError(f"k={self.k} is more than anybody has")


@dataclass(frozen=True)
class Nothing:
    """No options."""


@pytest.mark.parametrize(
    ("text", "values", "canonical"),
    [
        ("", Example(), ""),
        ("  ", Example(), ""),
        ("k=6,forecast=ar", Example(k=6, forecast="ar"), "k=6,forecast=ar"),
        (" forecast = ar , k = 6 ", Example(k=6, forecast="ar"), "k=6,forecast=ar"),
        ("share=1,k=2", Example(share=1.0), "share=1"),
        ("share=1e-3", Example(share=0.001), "share=0.001"),
        ("share=0.1", Example(share=0.1), "share=0.1"),
        ("shared=true,file=a/b=c.csv", Example(shared=True, file="a/b=c.csv"), "file=a/b=c.csv,shared=True"),
        ("k=2,share=0.5,forecast=last,shared=False", Example(), ""),
    ],
)
def test_a_text_becomes_options_and_the_canonical_text(text: str, values: Example, canonical: str) -> None:
    options = parse_options(text, Example, "options")
    assert options == values
    assert {type(each) for each in vars(options).values()} == {int, float, str, bool}
    assert options_text(options) == canonical
    assert parse_options(canonical, Example, "options") == options


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n=3", "o: option 'n' does not exist; there are: k, share, forecast, file, shared"),
        ("k", "o: 'k' has no value; write k=2"),
        ("file", "o: 'file' has no value; write file=..."),
        ("k=2,", "o: option '' does not exist"),
        ("k=2,k=3", "o: k stands there twice; give it once"),
        ("k=2.0", "o: k='2.0' is not possible; give a whole number of at least 1"),
        ("k=", "o: k='' is not possible"),
        ("k=0", "o: k=0 is not possible; give a whole number of at least 1"),
        ("share=half", "o: share='half' is not possible; give a number above 0 and of at most 1"),
        ("share=0", "o: share=0.0 is not possible"),
        ("share=nan", "o: share=nan is not possible"),
        ("share=inf", "o: share=inf is not possible"),
        ("forecast=best", "o: forecast='best' does not exist; there are: last, ar, lstm"),
        ("shared=1", "o: shared='1' is not possible; give False | True"),
        ("k=101", "o: k=101 is more than anybody has"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(JobError) as refused:
        parse_options(text, Example, "o")
    assert str(refused.value).startswith(message)


KINDS: dict[str, type[Any]] = {"plain": Nothing, "example": Example}


@pytest.mark.parametrize(
    ("text", "name", "options", "canonical"),
    [
        ("plain", "plain", Nothing(), "plain"),
        ("plain:", "plain", Nothing(), "plain"),
        ("example:k=3", "example", Example(k=3), "example:k=3"),
        (" example : k=2", "example", Example(), "example"),
        ("example:file=c:/x.csv", "example", Example(file="c:/x.csv"), "example:file=c:/x.csv"),
    ],
)
def test_names_with_options(text: str, name: str, options: Any, canonical: str) -> None:
    assert parse_named(text, KINDS, "policy") == (name, options)
    assert named_text(name, options) == canonical


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("other:k=1", "policy='other:k=1': 'other' does not exist; there are: example, plain"),
        ("", "policy='': '' does not exist"),
        ("plain:k=1", "policy='plain:k=1': option 'k' does not exist; it has no options"),
        ("example:k=0", "policy='example:k=0': k=0 is not possible"),
    ],
)
def test_names_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(JobError) as refused:
        parse_named(text, KINDS, "policy")
    assert str(refused.value).startswith(message)
