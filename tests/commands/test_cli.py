"""`lockstep run`: what it takes, what it refuses, and that it refuses before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import papermill
import pytest
from typer.testing import CliRunner

import lockstep.commands.runner.plans as plans
from lockstep.commands.application import app
from lockstep.commands.runner.plans import RunPlan, plan_runs
from lockstep.engine.files import WriteError
from lockstep.experiments.parameters import ParameterError, read_parameters
from lockstep.records.places import repository_root
from small_notebooks import small_repository, write_notebook

NO_IMAGES = "measure: bool = False\nresults: str = 'results/reference'\n"
TAKES_IMAGES = NO_IMAGES + "data_dir: str = ''\nstrict: bool = False\n"


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = small_repository(tmp_path / "repository")
    monkeypatch.chdir(root)
    monkeypatch.delenv("LOCKSTEP_DATA", raising=False)
    return root


def refused(*arguments: str) -> str:
    """The message of a refused `lockstep run`; nothing may have run."""
    result = CliRunner().invoke(app, ["run", *arguments])
    assert result.exit_code == 2, result.output
    assert not list(Path.cwd().rglob("executed.ipynb"))
    return result.output


def one_plan(root: Path, *assignments: str, **options: Any) -> RunPlan:
    (plan,) = plan_runs(["07"], root, assignments=assignments, **options)
    return plan


@pytest.mark.parametrize("name", ["07", "7", "07_small", "small", "07_small.ipynb", "notebooks/07_small.ipynb"])
def test_a_notebook_goes_by_number_name_or_path(small: Path, name: str) -> None:
    (plan,) = plan_runs([name], small)
    assert plan.name == "07_small"


def test_an_unknown_notebook_is_refused_and_the_known_ones_listed(small: Path) -> None:
    message = refused("08")
    assert "'08' does not exist" in message and "07_small" in message


def test_values_come_from_default_profile_and_command_in_this_order(small: Path) -> None:
    assert "workers" not in one_plan(small).parameters
    assert one_plan(small, profile="smoke").parameters["workers"] == 1
    plan = one_plan(small, "workers=3", profile="smoke")
    assert plan.parameters == {"workers": 3, "rate": 2.0, "measure": True, "results": "results/runs/smoke"}
    assert plan.folder == small / "results" / "runs" / "smoke" / "07_small"
    assert plan.executed == plan.folder / "executed.ipynb"


def test_values_are_yaml_of_the_parameters_type(small: Path) -> None:
    given = ("names=[local, ddp]", "rate=1e-3", "limits={a: 2}", "quick=true", "label='3'")
    plan = one_plan(small, *given)
    expected = {"names": ["local", "ddp"], "rate": 0.001, "limits": {"a": 2}, "quick": True, "label": "3"}
    assert expected.items() <= plan.parameters.items()
    assert isinstance(one_plan(small, "rate=2").parameters["rate"], float)


def test_a_mistyped_parameter_is_refused_with_the_closest_and_all_that_exist(small: Path) -> None:
    message = refused("07", "-p", "wrokers=2")
    assert "'wrokers'" in message and "did you mean workers?" in message
    for name in ("rate: float = 0.5", "names: list[str]", "limits: dict[str, int]", "quick: bool = False"):
        assert name in message


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("workers=two", "workers is int"),
        ("workers=2.5", "workers is int"),
        ("workers=true", "workers is int"),
        ("workers=", "workers is int"),
        ("rate=fast", "rate is float"),
        ("rate=true", "rate is float"),
        ("quick=1", "quick is bool"),
        ("label=3", "label is str"),
        ("names=threads", "names is list[str]"),
        ("names=[1, 2]", "names is list[str]"),
        ("limits=[1]", "limits is dict[str, int]"),
        ("limits={a: x}", "limits is dict[str, int]"),
        ("workers", "is not name=value"),
        ("names=[a", "is not YAML"),
        ("measure=false", "set by the runner"),
        ("results=elsewhere", "use --out"),
        ("strict=true", "--strict instead of -p strict"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name_and_type(small: Path, assignment: str, expected: str) -> None:
    message = refused("07", "-p", assignment)
    assert expected in message and assignment.partition("=")[0] in message


def test_a_profile_is_checked_as_strictly_as_the_command(small: Path) -> None:
    folder = small / "notebooks" / "profiles"
    (folder / "odd.yaml").write_text("07_small: {wrokers: 1}\n")
    assert "did you mean workers?" in refused("07", "--profile", "odd")
    (folder / "odd.yaml").write_text("07_small: {workers: many}\n")
    assert "workers is int" in refused("07", "--profile", "odd")
    (folder / "odd.yaml").write_text("09_other: {workers: 1}\n")
    assert "'09_other' that does not exist" in refused("07", "--profile", "odd")
    (folder / "odd.yaml").write_text("- 1\n")
    assert "must map" in refused("07", "--profile", "odd")
    assert "there are: odd, smoke" in refused("07", "--profile", "fast")


def test_one_wrong_notebook_of_several_stops_all(small: Path) -> None:
    write_notebook(small / "notebooks" / "08_other.ipynb", NO_IMAGES + "workers: str = 'many'", "1")
    assert "-p for 08_other: workers=1 is int" in refused("07", "08", "-p", "workers=1")


def test_a_value_reaches_the_notebooks_that_have_the_parameter(overview: Path) -> None:
    plans = plan_runs(["00", "07", "08"], overview, assignments=["workers=5"])
    assert {plan.name: plan.parameters.get("workers") for plan in plans} == {
        "07_small": 5, "08_photos": None, "00_overview": None
    }  # fmt: skip


def test_a_value_that_no_notebook_takes_is_refused_with_what_each_has(overview: Path) -> None:
    message = refused("00", "07", "-p", "rounds=1").replace("\n", " ")
    assert "no parameter 'rounds'; leave it out" in message and "00_overview has none to set" in message
    assert "07_small has workers: int = 2, rate: float = 0.5" in message
    assert "did you mean workers?" in refused("00", "07", "-p", "wrokers=1")
    message = refused("00", "-p", "rounds=1").strip()
    assert message.endswith("leave it out, or choose one that exists: 00_overview has none to set")
    assert "set by the runner" in refused("00", "-p", "strict=true"), "also where no notebook has it"


def test_the_folder_of_images_is_the_callers(overview: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel works in the repository's root, the caller may not; and nothing absolute enters the notebook."""
    (tmp_path / "photos").mkdir()
    monkeypatch.setenv("LOCKSTEP_DATA", "../../photos")
    monkeypatch.chdir(overview / "notebooks")
    for plan in plan_runs(["07", "00"], overview):
        assert plan.environment == {"LOCKSTEP_DATA": str((tmp_path / "photos").resolve())}
        assert str(tmp_path) not in str(plan.parameters)
    monkeypatch.setenv("LOCKSTEP_DATA", "nowhere")
    message = refused("07").replace("\n", " ")
    assert "LOCKSTEP_DATA=nowhere is not a folder" in message and "--data-dir" in message
    assert plan_runs(["00"], overview), "reads no images"
    assert plan_runs(["07"], overview, data_dir=tmp_path / "photos"), "has others"
    monkeypatch.setenv("LOCKSTEP_DATA", "")
    assert plan_runs(["07"], overview)[0].environment == {}


def test_data_and_run_folders_are_checked_first(small: Path, tmp_path: Path) -> None:
    assert "is not a folder" in refused("07", "--data-dir", str(tmp_path / "nowhere"))
    assert "give one of them" in refused("07", "--out", "x", "--reference")
    assert "--timeout" in refused("07", "--timeout", "0")
    (small / "file").write_text("in the way")
    message = refused("07", "--out", "file")
    assert "can't be made" in message and "--out" in message


def test_a_full_disk_is_told_before_anything_runs(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> None:
        raise WriteError(f"results can't be written to {path}: the disk is full")

    monkeypatch.setattr(plans, "write_atomically", full)
    assert "the disk is full" in refused("07")


def test_places_inside_the_repository_are_written_relative(small: Path, tmp_path: Path) -> None:
    images = small / "images"
    images.mkdir()
    plan = one_plan(small, data_dir=images, out=small / "mine")
    assert plan.parameters["data_dir"] == "images" and plan.parameters["results"] == "mine"
    outside = one_plan(small, out=tmp_path / "outside")
    assert outside.parameters["results"] == str(tmp_path / "outside")


def test_the_reference_holds_records_but_not_the_executed_notebook(small: Path) -> None:
    plan = one_plan(small, reference=True)
    assert plan.parameters["results"] == "results/reference"
    assert plan.folder == small / "results" / "reference" / "07_small"
    assert plan.executed == small / "results" / "runs" / "reference" / "07_small" / "executed.ipynb"


def test_papermill_finds_the_parameters_that_we_read(small: Path) -> None:
    path = small / "notebooks" / "07_small.ipynb"
    assert list(papermill.inspect_notebook(path, {})) == list(read_parameters(path))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("workers: int | None = 2", "a parameter is"),
        ("workers: int = 1 + n", "not a plain value"),
        ("workers: int = 'two'", "workers is int"),
        ("import os", "write name: type = value"),
        ("workers: int =", "is not Python"),
        ("where: Path = 'x'", "a parameter is"),
    ],
)
def test_a_parameters_cell_that_can_not_be_checked_is_refused(tmp_path: Path, line: str, expected: str) -> None:
    path = write_notebook(tmp_path / "01_odd.ipynb", line)
    with pytest.raises(ParameterError, match="01_odd"):
        read_parameters(path)
    with pytest.raises(ParameterError) as caught:
        read_parameters(path)
    assert expected in str(caught.value)


def test_a_notebook_needs_its_parameters_cell_and_the_runners_two(small: Path) -> None:
    write_notebook(small / "notebooks" / "08_other.ipynb", "workers: int = 2", "1")
    assert "has no parameter 'measure'" in refused("08")
    (small / "notebooks" / "09_broken.ipynb").write_text("{")
    assert "can't be read as a notebook" in refused("09")


def test_a_command_from_elsewhere_finds_its_own_clone(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert repository_root() == root


@pytest.fixture
def overview(small: Path) -> Path:
    """A repository with notebook 00, which takes no images, and notebook 08, which can be strict."""
    write_notebook(small / "notebooks" / "00_overview.ipynb", NO_IMAGES, "1")
    write_notebook(small / "notebooks" / "08_photos.ipynb", TAKES_IMAGES, "1")
    return small


def test_notebook_00_runs_last_and_writes_no_records(overview: Path) -> None:
    plans = plan_runs(["00", "08", "07"], overview, profile="smoke")
    assert [plan.name for plan in plans] == ["08_photos", "07_small", "00_overview"], "it reads what the others store"
    assert [plan.measures for plan in plans] == [True, True, False]
    folder = overview / "results" / "runs" / "smoke" / "00_overview"
    assert (plans[-1].folder, plans[-1].executed) == (folder, folder / "executed.ipynb")
    assert plans[-1].parameters == {"measure": True, "results": "results/runs/smoke"}


def test_minutes_are_shared_out_over_the_notebooks_that_measure(overview: Path) -> None:
    for name in ("07_small", "08_photos"):
        path = overview / "notebooks" / f"{name}.ipynb"
        path.write_text(
            path.read_text().replace("measure: bool = False", "measure: bool = False\\nminutes: float = 10.0", 1)
        )
    plans = plan_runs(["00", "07", "08"], overview, minutes=30)
    assert [plan.parameters.get("minutes") for plan in plans] == [15.0, 15.0, None]
    assert {plan.folder.parent.name for plan in plans} == {"default"}, "a second run goes on there"


def test_notebook_00_leaves_no_folder_in_the_reference(overview: Path) -> None:
    (plan,) = plan_runs(["00"], overview, reference=True)
    assert plan.parameters["results"] == "results/reference"
    assert plan.executed == overview / "results" / "runs" / "reference" / "00_overview" / "executed.ipynb"
    assert not (overview / "results" / "reference" / "00_overview").exists()


def test_images_go_to_the_notebooks_that_take_some(overview: Path) -> None:
    (overview / "images").mkdir()
    plans = plan_runs(["00", "07", "08"], overview, data_dir=overview / "images", strict=True)
    given = {plan.name: {key: plan.parameters.get(key) for key in ("data_dir", "strict")} for plan in plans}
    assert given == {
        "07_small": {"data_dir": "images", "strict": None},
        "08_photos": {"data_dir": "images", "strict": True},
        "00_overview": {"data_dir": None, "strict": None},
    }
    assert "strict" not in plan_runs(["08"], overview)[0].parameters, "the notebook's own default is False"


def test_an_option_that_no_notebook_has_a_use_for_is_refused(overview: Path) -> None:
    (overview / "images").mkdir()
    message = refused("00", "--data-dir", "images")
    assert "--data-dir has no meaning for 00_overview" in message and "leave it out" in message
    message = refused("00", "07", "--strict")
    assert "--strict has no meaning for 00_overview, 07_small" in message.replace("\n", " ")


def test_it_tells_where_the_results_are_and_00_has_none(overview: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    monkeypatch.setattr("lockstep.commands.runner.execution.execute", lambda plan: ran.append(plan.name))
    result = CliRunner().invoke(app, ["run", "00", "07", "--out", "mine"])
    assert ran == ["07_small", "00_overview"]
    assert result.output.splitlines() == [
        "07_small: results in mine/07_small",
        "07_small: executed notebook mine/07_small/executed.ipynb",
        "00_overview: executed notebook mine/00_overview/executed.ipynb",
    ]


def test_the_doctor_finds_this_environment_as_locked(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    result = CliRunner().invoke(app, ["doctor"])
    assert "requirements.lock" in result.output and "LACKING  lock" not in result.output, result.output
