"""The notebooks there are and the ones to come: numbers, questions and papers, from their own titles and the ledger."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from lockstep.published import read_claims, repository_root

PAPERS = {
    "single-to-multi": "Single-to-Multi",
    "convlstm-d-accel": "ConvLSTM-D-Accel",
    "dpro-sm": "DPro-SM",
}
"""How the ledger writes a paper -> the name that texts use."""


class CatalogueError(ValueError):
    """A notebook whose title can't be read; the message names the file and the fix."""


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


def catalogue(root: str | Path | None = None) -> list[Notebook]:
    """Every notebook in `notebooks/`, and every one that the claims ledger names, by number.

    Raises CatalogueError for a notebook without a title, PublishedError for a faulty ledger.
    """
    repository = Path(root) if root else repository_root()
    built = {path.stem: _question(path) for path in (repository / "notebooks").glob("[0-9]*.ipynb")}
    named = {str(name) for name in read_claims(repository)["notebook"] if name}
    return [Notebook(name, built.get(name, "")) for name in sorted({*built, *named})]


def _question(path: Path) -> str:
    """The first line of a notebook, `# 02 · Which is faster?`, without its number."""
    try:
        first = json.loads(path.read_text(encoding="utf-8"))["cells"][0]
        title = "".join(first["source"]).splitlines()[0]
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise CatalogueError(
            f"{path.name} has no title ({error!r}); its first cell must begin with # and a question"
        ) from error
    question = title.removeprefix("# ").partition(" · ")[2] or title.removeprefix("# ")
    if not title.startswith("# ") or not question.strip():
        raise CatalogueError(f"{path.name} begins with {title!r}; its first cell must begin with # and a question")
    return question.strip()
