"""Every build has the same bytes, a bill of materials, and extras that install."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.packaging.package_index import ROOT, USER_EXTRAS, package_index, run

from frazil.extras import EXTRA_OF

checkout = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="an sdist has no commits")
pytestmark = [checkout, pytest.mark.xdist_group("distribution")]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of Frazil of this checkout, from the script that builds everything twice and compares."""
    folder = tmp_path_factory.mktemp("dist")
    built = run("scripts/build-distribution", folder)
    assert built.returncode == 0, built.stderr
    sums = {name: digest for digest, name in map(str.split, built.stdout.splitlines())}
    assert sorted(Path(name).suffix for name in sums) == [".gz", ".gz", ".whl", ".whl"]
    for name, digest in sums.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    [file] = folder.glob("frazil-*.whl")
    return file


@pytest.fixture(scope="module")
def index(wheel: Path) -> Iterator[Mapping[str, str]]:
    with package_index(wheel.parent) as variables:
        yield variables


@pytest.mark.deep
def test_builds_with_the_times_of_files_are_refused(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    assert run("git", "clone", "--quiet", ROOT, clone).returncode == 0
    (clone / ".venv").symlink_to(ROOT / ".venv")
    with (clone / "pyproject.toml").open("a") as file:
        file.write("[tool.hatch.build]\nreproducible = false\n")
    built = run(clone / "scripts" / "build-distribution", tmp_path / "dist", cwd=clone)
    assert built.returncode == 1
    assert "same bytes" in built.stderr
    assert not (tmp_path / "dist").exists()


@pytest.mark.deep
def test_the_bill_of_materials_has_what_is_in_the_wheel(wheel: Path) -> None:
    text = []
    for _ in range(2):
        command = ("scripts/run", "python", "scripts/write-sbom", wheel)
        done = run(*command, SOURCE_DATE_EPOCH="1790000000")
        assert done.returncode == 0, done.stderr
        text.append(wheel.with_suffix(".cdx.json").read_text())
    assert text[0] == text[1]
    bill = json.loads(text[0])
    assert bill["metadata"]["timestamp"] == "2026-09-21T14:13:20Z"
    subject = bill["metadata"]["component"]
    assert subject["purl"] == f"pkg:pypi/frazil@{wheel.name.split('-')[1]}"
    assert subject["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    [digest] = subject["hashes"]
    assert digest["content"] == hashlib.sha256(wheel.read_bytes()).hexdigest()
    package = json.loads((ROOT / "explorer" / "package.json").read_text())
    versions = {part["name"]: part["version"] for part in bill["components"]}
    assert versions.items() >= {**package["dependencies"], **package["overrides"]}.items()
    assert all(part["purl"].startswith("pkg:npm/") and part["licenses"] for part in bill["components"])


def test_workflows_run_actions_by_their_hash() -> None:
    """A tag can move to other code."""
    files = [*ROOT.glob(".github/workflows/*.yml"), *ROOT.glob("kit/*.yml")]
    uses = re.findall(r"uses: *(?!\./)(\S+)", "".join(each.read_text() for each in files))
    assert uses
    assert [each for each in uses if not re.search(r"@[0-9a-f]{40}$", each)] == []


def extras_that_pages_install() -> set[str]:
    """What each `pip install` of a page has in its brackets."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    text = "".join(page.read_text() for page in pages)
    return set(re.findall(r'"(?:frazil|\.)\[([\w,-]+)\]', text))


def test_the_quickstart_lists_the_extras() -> None:
    section = (ROOT / "docs" / "quickstart.md").read_text().partition("| extra |")[2].partition("\n\n")[0]
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    assert set(re.findall(r"`([\w-]+)`", " ".join(cells))) == USER_EXTRAS
    assert {extra for extra in EXTRA_OF.values() if extra} <= USER_EXTRAS


@pytest.mark.deep
def test_the_wheel_commits_with_the_rules_of_windows(wheel: Path, tmp_path: Path) -> None:
    installed, uv = tmp_path / "installed", ROOT / ".venv" / "bin" / "uv"
    done = run(uv, "pip", "install", "--offline", "--no-deps", "--target", installed, wheel)
    assert done.returncode == 0, done.stderr
    program = ROOT / "tests" / "support" / "windows.py"
    done = run(sys.executable, program, tmp_path / "ice", cwd=tmp_path, PYTHONPATH=str(installed))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["WindowsSystem", "False", str(installed / "frazil" / "__init__.py")]


@pytest.mark.deep
def test_what_the_pages_install_resolves(index: Mapping[str, str], tmp_path: Path) -> None:
    uv = ROOT / ".venv" / "bin" / "uv"
    assert run(uv, "venv", "--quiet", "--python", sys.executable, tmp_path / "empty").returncode == 0
    image = re.findall(r'"(frazil\[.*?\]) @ ', (ROOT / "packaging" / "docker" / "Dockerfile").read_text())
    extras = extras_that_pages_install() | USER_EXTRAS
    requirements = {"frazil", *image, *(f"frazil[{each}]" for each in extras)}
    assert {"frazil[pipeline]", "frazil[spark]", "frazil[spark,connect,ingest]"} <= requirements
    for requirement in sorted(requirements):
        command = ("pip", "install", "--dry-run", "--python", tmp_path / "empty", requirement)
        done = run(uv, *command, **index)
        assert done.returncode == 0, (requirement, done.stderr)
        assert "+ frazil==" in done.stderr
        assert "warning" not in done.stderr, requirement  # of an extra that does not exist
