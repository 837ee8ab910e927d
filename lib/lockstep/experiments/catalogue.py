"""The notebooks there are and the ones to come: numbers, questions and papers, from their own titles and the ledger."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.analysis.published import read_ledger
from lockstep.experiments.registry import every

PAPERS = {"single-to-multi": "Single-to-Multi", "convlstm-d-accel": "ConvLSTM-D-Accel", "dpro-sm": "DPro-SM"}
"""How the ledger writes a paper -> the name that texts use."""


@dataclass(frozen=True)
class Notebook:
    """A notebook of this repository, or one that the ledger names and nobody has built yet."""

    name: str  # 02_threads_vs_processes
    question: str = ""  # its title; "" if it is not built

    @property
    def number(self) -> str:
        return self.name.partition("_")[0]

    @property
    def built(self) -> bool:
        return bool(self.question)

    @property
    def subject(self) -> str:
        """Its question, or as long as there is none, its name in words."""
        return self.question or self.name.partition("_")[2].replace("_", " ")


def catalogue() -> list[Notebook]:
    """Every experiment's notebook, and every one that the claims ledger names, by number.

    Raises PublishedError for a faulty ledger.
    """
    built = {found.name: found.question for found in every()}
    named = {str(name) for name in read_ledger()["notebook"] if name}
    return [Notebook(name, built.get(name, "")) for name in sorted({*built, *named})]
