"""A new sync is one file and one line: everything else reads what the file declares.

The test copies the library, adds the file and the line to the copy, and asks the copy, in processes of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(900)  # new processes, each of which loads the library, on a machine that may be busy
TOY = Path(__file__).with_name("toy_sync.py.txt")
LINE = '    "toy": "lockstep.engine.sync.toy:ToySync",\n'


@pytest.fixture(scope="module")
def library(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the library with one file and one line more."""
    copy = tmp_path_factory.mktemp("library")
    shutil.copytree(root / "lib" / "lockstep", copy / "lockstep", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(TOY, copy / "lockstep" / "engine" / "sync" / "toy.py")
    registry = copy / "lockstep" / "engine" / "registry.py"
    lines = registry.read_text().splitlines(keepends=True)
    lines.insert(lines.index("SYNCS = {\n") + 1, LINE)
    registry.write_text("".join(lines))
    return copy


def run(library: Path, *arguments: str) -> str:
    """What Python prints with these arguments and that library."""
    environment = os.environ | {"PYTHONPATH": str(library)}
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, text=True, capture_output=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ask(library: Path, program: str) -> Any:
    """What a program leaves in `found`, by way of JSON."""
    return json.loads(run(library, "-c", f"import json\n{textwrap.dedent(program)}\nprint(json.dumps(found))"))


def test_a_job_has_its_options_and_checks_them(library: Path) -> None:
    refused, columns, cautions, others = ask(
        library,
        """
        from lockstep.engine.job import IDENTITY, Job, JobError

        def message(**fields):
            try:
                Job(**fields)
            except JobError as error:
                return str(error)

        falling = {"sync": "toy", "toy_order": "falling"}
        found = [
            [message(sync="toy", toy_share=0.0), message(sync="toy", toy_order="up"),
             message(sync="gossip", toy_share=0.5), message(toy_share=0.5, **falling)],
            [name for name in IDENTITY[IDENTITY.index("selected") + 1 :] if name.startswith("toy_")],
            [Job.of("toy", workers=2, toy_share=share).cautions(8) for share in (1.0, 0.5)],
            [message(sync="toy", framework="tensorflow"), Job.from_json(json.dumps(falling)).toy_order],
        ]
        """,
    )
    assert refused == [
        "toy_share=0.0 is not possible; give a number above 0 and of at most 1",
        "toy_order='up' does not exist; there are: rising, falling",
        "toy_share=0.5 does nothing with sync='gossip'; only toy reads it",
        "toy_share=0.5 with toy_order='falling'; give toy_share=1.0",
    ]
    assert columns == ["toy_share", "toy_order"], "new columns come last"
    assert cautions == [[], ["not synchronous SGD: other parameters than one worker would reach"]]
    assert others == [None, "falling"]


@pytest.mark.slow
def test_it_is_a_row_of_a_grid_and_older_records_are_read_as_before(library: Path, root: Path, tmp_path: Path) -> None:
    row, stored, old = ask(
        library,
        f"""
        from lockstep.engine.job import Job
        from lockstep.measure.cell import measure_job
        from lockstep.measure.teams import Teams
        from lockstep.records import RunFolder, read_records

        job = Job.of("toy", workers=2, experiment="collective", input="none", message_bytes=4096, launcher="threads")
        with Teams() as teams, RunFolder({str(tmp_path / "run")!r}, {{}}, {{}}) as folder:
            row = measure_job(job, None, teams)[0]
            folder.write_round([row])
        stored = read_records({str(tmp_path / "run")!r}).iloc[0]
        old = read_records({str(root / "results/reference/05_mpi_distribution")!r})
        found = [[row["status"], row["strategy"], row["sync"], row["toy_share"], row["exchange_seconds"] > 0],
                 [str(stored["toy_order"]), float(stored["toy_share"])],
                 [sorted(set(old["toy_order"])), sorted(set(old["toy_share"]))]]
        """,
    )
    assert row == ["ok", "toy", "toy", 1.0, True]
    assert stored == ["rising", 1.0] and old == [["rising"], [1.0]]


@pytest.mark.slow  # it starts a pytest of its own
def test_the_conformance_suite_trains_it_beside_one_worker(library: Path, root: Path) -> None:
    """Threads and processes; also resumed, which is all that the variant that differs must pass."""
    suite = root / "tests" / "conformance" / "test_conformance.py"
    chosen = "(parameters_are_those or resume) and toy and (threads or processes) and not 3-"
    said = run(library, "-m", "pytest", "-v", "-p", "no:cacheprovider", str(suite), "-k", chosen)
    passed = [line.split("::")[1].split()[0] for line in said.splitlines() if " PASSED" in line]
    equal, resumed = "test_the_parameters_are_those_of_one_worker", "test_resume_reaches_the_unbroken_runs_parameters"
    for launcher, variants in (("threads", ("toy", "toy-falling")), ("processes", ("toy", "toy-falling"))):
        assert {f"{equal}[2-{launcher}-{variant}]" for variant in variants} <= set(passed)
        assert f"{resumed}_exactly[{launcher}-toy-half]" in passed
    assert not any(name.startswith(equal) and "half" in name for name in passed)


def test_it_has_a_price(library: Path) -> None:
    assert ask(
        library,
        """
        from lockstep.predict import cost_model, link_model

        link = link_model.AlphaBeta(1e-3, 1e-9)
        chain = cost_model.chain_of_sync("toy", 4, 1e6)
        costs = cost_model.Costs(0.0, 0.001, 0.0, {"toy": 2e-9}, 1e6)
        cell = {"strategy": "toy", "sync": "toy", "workers": 4, "hosts": 1, "global_batch_size": 4}
        found = ["toy" in cost_model.priced(), chain.messages, chain.bytes, round(costs.step_seconds(cell), 6),
                 round(costs.on_cluster(4, 4, "toy", link)[1], 6)]
        """,
    ) == [True, 3, 3e6, 0.001 + 0.006, 0.003 + 0.003]


@pytest.mark.slow
def test_it_is_drawn_with_its_own_label_colour_and_mark(library: Path) -> None:
    labels, colours, marks = ask(
        library,
        """
        import pandas as pd
        from matplotlib.colors import to_hex

        from lockstep.analysis.figures.style import PALETTE
        from lockstep.experiments.e02_threads_vs_processes.drawings import scaling_lines

        common = {"use_case": "SimpleBig", "status": "ok", "data_source": "real", "global_batch_size": 32}
        table = pd.DataFrame([
            common | {"strategy": "toy", "workers": n, "speedup": n, "low": n, "high": n, "cores": n, "base_cores": 1,
                      "base": "sequential"} for n in (1, 2)])
        figure = scaling_lines(table, "title")
        (handle, *_) = figure.legends[0].legend_handles
        found = [[text.get_text() for text in figure.legends[0].get_texts()],
                 [to_hex(handle.get_color()), to_hex(PALETTE[4])], handle.get_marker()]
        """,
    )
    assert labels[0] == "a toy: shares of sums (measured)"
    assert colours[0] == colours[1] and marks == "s"


@pytest.mark.slow
def test_lockstep_strategies_describes_it(library: Path) -> None:
    found = json.loads(run(library, "-m", "lockstep.commands.cli", "strategies", "toy", "--json"))
    (row,), (sync,) = found["strategies"], found["syncs"]
    assert row["label"] == "a toy: shares of sums" and row["equals_sequential"].startswith("yes: every step")
    assert row["fields"] == {"launcher": "processes", "sync": "toy"}
    assert sync["preserves"] == "equal where the whole sum is taken (toy_share=1)"
    assert [(option["name"], option["default"], option["allowed"]) for option in sync["options"]] == [
        ("toy_share", 1.0, "a number above 0 and of at most 1"),
        ("toy_order", "rising", "rising | falling"),
    ]
    assert sync["runs_on"] == ["threads", "processes", "engines", "mpiexec", "spark"]
    text = run(library, "-m", "lockstep.commands.cli", "strategies", "toy")
    assert "share of the summed gradient that a step takes" in " ".join(text.split())
