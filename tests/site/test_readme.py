"""What the README and the architecture promise: the example runs, links lead somewhere, and every name exists."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

import lockstep
from lockstep.commands.application import app
from lockstep.commands.runner.parameters import check_values, parse_assignments
from lockstep.commands.runner.places import find_notebook
from lockstep.engine.registry import SYNCS
from lockstep.experiments.catalogue import catalogue
from lockstep.experiments.parameters import read_parameters
from lockstep.records import COLUMNS, TABLES

DOCUMENTS = (
    "README.md", "CHANGELOG.md", "docs/advise.md", "docs/architecture.md", "docs/claims.md", "docs/cluster.md",
    "docs/glossary.md", "docs/measuring.md", "docs/stragglers.md", "docs/train.md", "docs/tune.md",
    "docs/why-slower.md", "data/README.md",
)  # fmt: skip
every_document = pytest.mark.parametrize("name", DOCUMENTS)


@pytest.fixture(scope="module")
def readme(root: Path) -> str:
    return (root / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def guide(root: Path, readme: str) -> str:
    """The README and the pages that it sends its readers to."""
    pages = [root / "docs" / f"{name}.md" for name in ("measuring", "advise", "train", "tune", "cluster")]
    return "\n".join([readme, *(page.read_text(encoding="utf-8") for page in pages)])


@pytest.fixture(scope="module")
def architecture(root: Path) -> str:
    return (root / "docs" / "architecture.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[str]:
    """Command lines of the shell blocks, and those set as code within a line."""
    lines = [line.partition("#")[0].strip() for block in blocks(text, "bash") for line in block.splitlines()]
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return [line for line in [*lines, *re.findall(r"`([^`\n]+)`", prose)] if line]


@pytest.mark.slow  # four processes import torch
@pytest.mark.usefixtures("no_leftovers")
@pytest.mark.parametrize(
    ("name", "call", "least_checks", "says"),
    [
        ("README.md", "lockstep.train(", 1, r"\d+ images/s, \{'test_accuracy': "),
        ("docs/train.md", "lockstep.train(", 4, r"\d+ images/s, \{'test_accuracy': "),
        ("docs/tune.md", "lockstep.tune(", 1, r"0\.\d\d with \{'units': \d+, 'learning_rate': "),
    ],
)
def test_the_example_runs(root: Path, name: str, call: str, least_checks: int, says: str, tmp_path: Path) -> None:
    """As a reader would run it: a script of its own, somewhere else."""
    (example,) = blocks((root / name).read_text(encoding="utf-8"), "python")
    checks = [node for node in ast.walk(ast.parse(example)) if isinstance(node, ast.Assert)]
    assert call in example and len(checks) >= least_checks, "it shows nothing unless it checks something"
    script = tmp_path / "example.py"
    script.write_text(example, encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.match(says, done.stdout), done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["example.py"], "training leaves no files in the way"


@every_document
def test_every_link_leads_somewhere(root: Path, name: str) -> None:
    path = root / name
    text = path.read_text(encoding="utf-8")
    titles = re.findall(r"^#+ (.+)$", text, re.M)
    headings = {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        file, _, anchor = target.partition("#")
        if target.startswith("https://"):
            continue
        if file and not (path.parent / file).is_file():
            wrong.append(target)
        if not file and anchor not in headings:
            wrong.append(target)
    assert not wrong


def test_every_make_target_and_variable_exists(root: Path, guide: str, architecture: str) -> None:
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.M))
    variables = set(re.findall(r"^([A-Z_]+) \?=", makefile, re.M))
    named = set(re.findall(r"\bmake ([a-z]+)\b", "\n".join(commands(guide) + commands(architecture))))
    assert {"reproduce", "test", "figures", "report", "lab"} <= named <= targets
    assert {"MINUTES", "PROFILE", "DATA_DIR", "RESULTS"} <= variables
    assert set(re.findall(r"\b((?!LOCKSTEP_)[A-Z_]{4,})=", guide)) <= variables


def test_every_lockstep_command_would_be_accepted(root: Path, guide: str, tmp_path: Path) -> None:
    (tmp_path / "fire-smoke").mkdir()
    guide = guide.replace("path/to/root", str(tmp_path))
    lines = [line for line in commands(guide) if line.startswith(".venv/bin/lockstep ")]
    assert len(lines) >= 4
    for line in lines:
        given = parsed(shlex.split(line)[1:])
        for notebook in given.get("notebooks") or []:
            known = read_parameters(find_notebook(notebook, root))
            check_values(parse_assignments(given["parameter"] or []), known, line)
            assert given["profile"] is None or (root / "notebooks" / "profiles" / f"{given['profile']}.yaml").is_file()


def parsed(arguments: list[str]) -> dict[str, Any]:
    """The options of a command line, down to the command within a group. Raises click's UsageError for a wrong one."""
    command: Any = typer.main.get_command(app)
    name, *rest = arguments
    while hasattr(command, "commands"):
        command = command.commands[name]
        if hasattr(command, "commands"):
            name, *rest = rest
    given: dict[str, Any] = command.make_context(name, rest).params
    return given


def test_every_notebook_is_linked_and_listed_with_its_own_question(readme: str, root: Path) -> None:
    claims = (root / "docs" / "claims.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[(\d\d)\]\(\.\./notebooks/(\w+)\.ipynb\) \| (.+?) \| .+ \|$", claims, re.M)
    built = [notebook for notebook in catalogue() if notebook.built]
    assert listed == [(notebook.number, notebook.name, notebook.question) for notebook in built]
    linked = re.findall(r"\[(\d\d) [^]]+\]\(notebooks/(\w+)\.ipynb\)", readme)
    assert linked == [(notebook.number, notebook.name) for notebook in built]


def test_five_findings_stand_in_plain_sentences_with_links(readme: str) -> None:
    found = re.findall(r"^- .+ \(\[(\d\d)\]\(notebooks/\w+\.ipynb\)\)\.$", readme, re.M)
    assert len(found) == len(set(found)) == 5 and "; ..." not in readme


def test_what_is_still_to_come_is_named(readme: str) -> None:
    """A newcomer must not look for notebooks that are not there; nor miss in this list one that the ledger knows."""
    told = re.findall(r"Still to come: (.+?)\.", readme, re.S)
    missing = [notebook.number for notebook in catalogue() if not notebook.built]
    assert re.findall(r"\((\d\d)\)", "".join(told)) == missing


def test_the_commands_of_make_come_first(root: Path, readme: str) -> None:
    first = blocks(readme, "bash")[0].splitlines()
    assert [line.split("#")[0].strip() for line in first] == ["make reproduce", "make check", "make test"]
    shown = subprocess.run(["make", "-n", "reproduce"], cwd=root, capture_output=True, text=True, check=True).stdout
    (run,) = [line for line in shown.splitlines() if " run " in line]
    everything = " ".join(notebook.number for notebook in catalogue() if notebook.built)
    assert run.split(" run ")[1].strip() == f"{everything} --minutes '30'"


def test_it_is_short_and_opens_with_a_command(readme: str) -> None:
    lines = readme.splitlines()
    assert len(lines) <= 90 and lines.index("```bash") < 30


def test_two_generated_tables_and_one_figure(readme: str) -> None:
    assert re.findall(r"<!-- (/?table[:\w]*) -->", readme) == [
        "table:findings", "/table", "table:advice", "/table"
    ]
    images = re.findall(r"<img [^>]+>|!\[[^]]*\]\([^)]+\)", readme)
    assert len(images) == 1, "and it is no taller than half a screen"
    assert re.fullmatch(r'<img src="results/reference/\w+/figures/\w+\.png" height="400" alt="[^"]+">', images[0])


def rooms(architecture: str) -> list[str]:
    """The rooms of `lib/lockstep/` in the picture of the house, from the lowest to the highest."""
    (house,) = [block for block in blocks(architecture, "") if block.startswith("lib/lockstep/\n")]
    return re.findall(r"^  (\w+)/? +\S", house, re.M)


def test_every_room_of_the_library_is_in_the_picture(root: Path, architecture: str) -> None:
    there = [path.stem for path in (root / "lib" / "lockstep").iterdir() if not path.name.startswith(("_", "."))]
    assert sorted(rooms(architecture)) == sorted(name for name in there if name != "py")


def test_the_rooms_stand_in_the_order_that_the_linter_enforces(root: Path, architecture: str) -> None:
    (layers,) = re.findall(r"^layers = \[(.*?)^\]", (root / "pyproject.toml").read_text(encoding="utf-8"), re.M | re.S)
    floor = {
        name: number
        for number, line in enumerate(reversed(re.findall(r'"([^"]+)"', layers)))
        for name in re.findall(r"\w+", line)
    }
    shown = [name for name in rooms(architecture) if name != "api"]  # the interface stands below them all
    assert [floor[name] for name in shown] == sorted(floor[name] for name in shown)


@every_document
def test_every_name_of_the_library_exists(root: Path, name: str) -> None:
    text = (root / name).read_text(encoding="utf-8")
    for dotted in sorted(set(re.findall(r"`(lockstep(?:\.\w+)+)", text))):
        assert resolve(dotted) is not None, dotted


def test_the_tables_to_add_to_are_named(architecture: str) -> None:
    for table in ("SYNCS", "LAUNCHERS", "PEERS", "STRATEGIES", "USE_CASES", "EXPERIMENTS", "COMMON"):
        assert re.search(rf"`lockstep\.[\w.]+\.{table}`", architecture), table


def resolve(dotted: str) -> object:
    """The module, class, function or table of that name. Raises AttributeError or ImportError if there is none."""
    found: Any = lockstep
    parts = dotted.split(".")[1:]
    for place, part in enumerate(parts):
        if not hasattr(found, part):
            importlib.import_module(".".join(["lockstep", *parts[: place + 1]]))
        found = getattr(found, part)
    return found


def test_every_place_in_the_glossary_exists(root: Path) -> None:
    """Files and folders of the library or of the repository, columns, traced tables and syncs."""
    glossary = (root / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?!term |---)(.+?) \| .+ \| (.+) \|$", glossary, re.M)
    assert len(rows) > 40
    library = root / "lib" / "lockstep"
    for term, where in rows:
        for name in re.findall(r"`([^`]+)`", where):
            files = [*library.glob(name), *library.glob(f"{name}.py"), *root.glob(name)]
            assert files or name in {*COLUMNS, *TABLES, *SYNCS}, (term, name)


def test_the_glossary_is_in_alphabetical_order(root: Path) -> None:
    terms = re.findall(r"^\| (?!term |---)(.+?) \|", (root / "docs" / "glossary.md").read_text(encoding="utf-8"), re.M)
    assert terms == sorted(terms, key=lambda term: re.sub("[^a-z]", "", term.lower()))
