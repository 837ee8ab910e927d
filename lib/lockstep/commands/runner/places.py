"""Where the notebooks are, and how a place is written in a record."""

from __future__ import annotations

from pathlib import Path

from lockstep.commands.runner.errors import RunError


def notebooks(root: Path) -> list[Path]:
    """The numbered notebooks, in order."""
    return sorted((root / "notebooks").glob("[0-9]*.ipynb"))


def reads_the_others(notebook: Path) -> bool:
    """Whether it is notebook 00: it measures nothing, and shows what all others have stored."""
    number = notebook.stem.partition("_")[0]
    return number.isdecimal() and int(number) == 0


def find_notebook(name: str, root: Path) -> Path:
    """A notebook by number (`02`, `2`), by name, or by the path of any .ipynb file.

    Raises RunError, listing the notebooks that exist.
    """
    if name.endswith(".ipynb") and Path(name).is_file():
        return Path(name).resolve()
    known = notebooks(root)
    wanted = name.removesuffix(".ipynb")
    for path in known:
        number = path.stem.partition("_")[0]
        if wanted in (path.stem, path.stem.partition("_")[2]) or (wanted.isdecimal() and int(wanted) == int(number)):
            return path
    there = ", ".join(path.stem for path in known) or "none"
    raise RunError(f"notebook {name!r} does not exist; there are: {there}")


def written(path: Path, root: Path) -> str:
    """A path as parameters, messages and records hold it: relative to the repository where it lies inside."""
    path = path.resolve()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
