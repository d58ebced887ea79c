"""The command, the forms of the results, and the pages that name cases."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
import xml.etree.ElementTree
from fnmatch import fnmatch
from pathlib import Path

import icechunk_kit.cases  # noqa: F401 - registers the cases
import pytest
from icechunk_kit.case import CASES, LEVELS, VERSIONS, KitError
from icechunk_kit.cases import register
from icechunk_kit.command import main
from icechunk_kit.report import badge, comparison, levels, summary

KIT = Path(__file__).parents[1]
#: Limits of time grow with the slowness of the machine.
PATIENCE = max(4.0, float(os.environ.get("FRAZIL_TEST_SLOWNESS", "1")))
SIMPLE = f"{sys.executable} {KIT / 'tests' / 'simple_reader.py'}"


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(KIT / "src"))


def test_results_as_a_table_json_and_a_badge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(tmp_path / name) for name in ("results.json", "badge.svg")]
    options = ["--only", "reference.kinds", "--name", "simple", "--json", files[0], "--badge", files[1]]
    assert main(["run", SIMPLE, *options]) == 0
    assert "| reader | 2.0 | 1 / 0 / 0 |  |  |" in capsys.readouterr().out
    results = json.loads(Path(files[0]).read_text())
    assert results["levels"] == {"1": "", "2.0": "", "2.1": ""}  # one case is no level
    assert [(row["id"], row["outcome"]) for row in results["results"]] == [("reference.kinds", "passed")]
    text = xml.etree.ElementTree.fromstring(Path(files[1]).read_text()).itertext()
    assert list(text) == ["Icechunk", "part of the cases"]
    assert main(["compare", files[0]]) == 0
    assert "| simple | " in capsys.readouterr().out


def test_tap_and_status_of_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    adapter = tmp_path / "adapter.py"
    adapter.write_text("import sys\nfor line in sys.stdin: print('{\"value\": 1}', flush=True)")
    assert main(["run", f"{sys.executable} {adapter}", "--only", "reference.native", "--tap"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["TAP version 14", "not ok 1 - reference.native"] and lines[-1] == "1..1"
    # reference.kinds passes, and write.files is not supported, which is no failure
    assert main(["run", SIMPLE, "--only", "*e.[kf]i*s", "--tap"]) == 0
    assert "# SKIP" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("adapter", "pattern", "message"),
    [
        ("python nowhere.py", "*", "nowhere.py: the adapter ended with status 2: "),
        ("no-such-command x", "*", "No such file or directory"),
        ("", "*", "does not start"),
        ("python 'x", "*", "No closing quotation"),
        ("echo hello", "*", "hello"),
        (f"{sys.executable} -c 1/0", "*", "ZeroDivisionError: division by zero"),
        (SIMPLE, "refrence.*", "no case"),
        (SIMPLE, "write.create", "supports none"),
    ],
)
def test_a_run_that_cannot_begin_is_one_sentence(
    adapter: str, pattern: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", adapter, "--only", pattern]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("icechunk-kit: ") and message in line


def test_an_adapter_that_dies_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    adapter = tmp_path / "adapter.py"
    adapter.write_text("print('{\"value\": 1}', flush=True)\ninput()\ninput()\nraise ValueError('no more')")
    assert main(["run", f"{sys.executable} {adapter}", "--only", "reference.native"]) == 1
    assert "ended with status 1: ValueError: no more" in capsys.readouterr().out


HEADS = "level reader\nrule silent\nwhy It is.\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"case test.lacks\n{HEADS.replace('rule', 'rul')}", "bad.cases, line 1, case test.lacks"),
        (f"case reference.native\n{HEADS}", "bad.cases, line 1, case reference.native: there is another"),
        (f"\n{HEADS}case test.step\n  + snapshat one\n", "bad.cases, line 5, case test.step: KeyError"),
        (f"{HEADS}case test.edit\n  + tag root v\n      edit Snapshot . id=1", "line 4, case test.edit: "),
    ],
)
def test_a_case_that_is_written_badly_has_a_place(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = {"reference.native": CASES["reference.native"]}
    monkeypatch.setattr("icechunk_kit.cases.CASES", cases)
    file = tmp_path / "bad.cases"
    file.write_text(text)
    with pytest.raises(KitError, match=re.escape(message)):  # noqa: PT012 - some errors come with the files
        register(file)
        list(cases.values())[-1].build(tmp_path)


ROW = {"id": "a.b", "version": "2.0", "level": "reader", "ground": "silent", "detail": "step 1: no\nanswer"}


def test_a_level_needs_all_cases_of_this_level_and_of_those_below() -> None:
    rows = [{"id": id, "outcome": "passed"} for id, case in CASES.items() if case.level != "writer"]
    reached = levels(rows)
    assert reached == {"1": "reader", "2.0": "reader", "2.1": "reader"}
    assert levels([row for row in rows if row["id"] != "reference.native"])["2.0"] == ""
    assert levels([row for row in rows if CASES[row["id"]].ground != "robustness"]) == reached
    assert summary({"levels": reached, "partial": True}) == "reader 1, reader 2.0, reader 2.1"
    assert "no level" in badge({"levels": levels([]), "partial": False})


def test_a_page_of_several_implementations_names_the_failures() -> None:
    document = {"implementation": "one", "date": "2026-01-01", "results": [{**ROW, "outcome": "failed"}]}
    page = comparison([document, {**document, "implementation": "two", "results": []}])
    assert "| one | 2026-01-01 |  | 0 / 1 / 0 |" in page and "- silent, `a.b`: `step 1: no answer`" in page
    assert "## two" not in page


def test_export_writes_files_and_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--only", "reference.n*", str(tmp_path)]) == 0
    assert main(["list", "--only", "reference.n*"]) == 0
    ids = [case["id"] for case in json.loads(capsys.readouterr().out)]
    assert ids and sorted(path.name for path in tmp_path.iterdir()) == ids
    for id in ids:
        case = json.loads((tmp_path / id / "case.json").read_text())
        assert case["steps"] and case["rule"] == CASES[id].rule
        assert (tmp_path / id / "repository" / "repo").is_file()


def test_each_folder_that_a_case_writes_has_a_request(tmp_path: Path) -> None:
    assert main(["export", "--only", "damage.truncated.repo.*", str(tmp_path)]) == 0
    for path in tmp_path.glob("*/case.json"):
        folders = {folder.name for folder in (path.parent / "repository").iterdir()}
        assert len(folders) == 16 and folders == {
            step["at"] for step in json.loads(path.read_text())["steps"]
        }


def test_a_case_says_what_it_tests_and_why() -> None:
    assert len(CASES) >= 200
    for id, case in CASES.items():
        assert re.fullmatch(r"[a-z0-9]+([.-][a-zA-Z0-9_-]+)*", id), id
        assert case.rule and case.why.endswith("."), id
        assert case.level in LEVELS and case.version in VERSIONS


def test_the_annotated_specification_names_each_case() -> None:
    text = (KIT.parent / "docs" / "specification.md").read_text()
    cells = [line.strip("|").rpartition("|")[2] for line in text.splitlines() if line.startswith("| ")]
    patterns = [pattern for cell in cells for pattern in re.findall("`([^`]+)`", cell)]
    assert [each for each in patterns if not any(fnmatch(id, each) for id in CASES)] == []
    assert [id for id in CASES if not any(fnmatch(id, each) for each in patterns)] == []


@pytest.mark.parametrize("page", sorted((KIT / "deviations").glob("*.md")), ids=lambda page: page.stem)
def test_a_deviation_names_cases_that_exist(page: Path) -> None:
    text = page.read_text()
    for pattern in re.findall(r"--only '([^']+)'", text) + re.findall(r"[Tt]he cases? `([^`]+)`", text):
        assert any(fnmatch(id, pattern) for id in CASES), pattern
    index = (KIT / "deviations" / "README.md").read_text()
    assert page.stem == "README" or f"({page.name})" in index


@pytest.mark.deep
def test_the_wheel_runs_without_frazil(tmp_path: Path) -> None:
    """The environment has the packages that this one has, but only the kit of this repository."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=KIT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    packages = [module for module in sys.path if module.endswith("site-packages")]
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "frazil.py").write_text("raise ImportError('the kit imports no implementation')")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "blocked"), *packages])}
    kit = str(python.with_name("icechunk-kit"))
    adapter = f"{python} {KIT / 'tests' / 'simple_reader.py'}"
    for arguments in (["list"], ["run", adapter, "--only", "array.*", "--patience", f"{PATIENCE}"]):
        command = [kit, *arguments]
        result = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
        assert arguments != ["list"] or len(json.loads(result.stdout)) == len(CASES)
