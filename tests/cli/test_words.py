"""What the command line says: commands and options, never calls of Python."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zarr

import frazil
from frazil.cli.main import main
from frazil.extras import install_command

Run = Callable[..., str]

#: A call, a method of a handle, or an argument of Python.
PYTHON = re.compile(
    r"frazil\.\w+\(|frazil\.[A-Z]\w+|Repository\.|\brepo\.[a-z]|\bsession\.\w|Session\.|solver|\b[a-z_]+=(True|False|')"
)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with repositories in states that make commands fail. No command may change them."""
    folder = tmp_path_factory.mktemp("states")
    for name in ("ice", "cut", "frozen", "other"):
        repo = frazil.Repository.create(frazil.local_filesystem_storage(str(folder / name)))
        with repo.transaction("main", message="an array") as store:
            zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4")[:] = range(4)
        repo.create_tag("v1", repo.lookup_branch("main"))
    (folder / "cut" / "repo").write_bytes((folder / "cut" / "repo").read_bytes()[:100])
    repo = frazil.Repository.open(frazil.local_filesystem_storage(str(folder / "ice")))
    repo.create_branch("dev", repo.lookup_branch("main"))
    for branch, value in (("main", 7), ("dev", 8)):
        with repo.transaction(branch, message=f"on {branch}") as store:
            zarr.open_array(store, path="t")[0] = value
    repo.protect_branch("main", principals=["ada"])
    assert main(["init", str(folder / "old"), "--spec-version", "1"]) == 0
    assert main(["config", str(folder / "frozen"), "--read-only", "moved"]) == 0
    (folder / "text.nc").write_text("no file of a known format")
    return folder


@pytest.fixture
def place(damaged: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same folder as the current one, without credentials in the environment."""
    monkeypatch.chdir(damaged)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return damaged


FAILURES = (
    "log ice@mian",
    "show ice@0123456789ABCDEFGHJK",
    "cat ice:nothing",
    "init ice",
    "unprotect ice deu",
    "restore-to other 2000-01-01 -y",
    "tag ice v1",
    "merge ice dev",
    "cherry-pick ice dev",
    "set ice:t 0 1",
    "mv ice@dev:nothing :else",
    "bisect ice dev --rules nothing.yaml",
    "watch ice --cursor 5 --timeout 0s",
    "import ice",
    "copy ice other",
    "rechunk ice:t t=1",
    "ingest text.nc ice2 --engine inline",
    "ingest nothing.nc ice2 --engine inline",
    "config ice nothing=1",
    "log s3://bucket",
)


#: The same, and the command in the error.
COMMANDS = {
    "log cut": "`frazil repair cut`",
    "undo old": "`frazil upgrade old`",
    "tag frozen v2": "`frazil config frozen --online`",
    "log nowhere": "`frazil init nowhere`",
    "reset ice v1 -y": "`frazil unprotect ice main`",
    "redo other": "`frazil undo other`",
    "diff ice main dev": "`frazil diff ice@main dev`",
}


@pytest.mark.parametrize(("line", "command"), [*dict.fromkeys(FAILURES, "").items(), *COMMANDS.items()])
def test_errors_name_commands(
    line: str, command: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(shlex.split(line)) != 0
    text = capsys.readouterr().err
    assert text.startswith("frazil: ")
    assert not PYTHON.search(text), text
    assert command in text


def test_a_rehearsal_of_an_expiration_is_short(own: Path, repo: frazil.Repository, run: Run) -> None:
    for number in range(30):
        repo.writable_session("main").commit(f"commit {number}", allow_empty=True)
    short, whole = (run(f"expire ice --last 1 --dry-run{more}").splitlines() for more in ("", " --verbose"))
    assert len(short) < 30 < len(whole)
    assert "--verbose" in "".join(short)
    assert {line for line in short if "commit" in line} < set(whole)


@pytest.mark.parametrize(
    "line", ["copy ice a", "clone ice a", "export ice a", "ingest a.nc ice", "import a b"]
)
def test_a_missing_extra_is_one_sentence(line: str, own: Path) -> None:
    program = (
        "import sys; from frazil.extras import EXTRA_OF; sys.modules.update(dict.fromkeys(EXTRA_OF));"
        "from frazil.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    call = [sys.executable, "-c", program, *line.split()]
    done = subprocess.run(call, capture_output=True, text=True, cwd=own, check=False)
    assert done.returncode == 1
    (text,) = done.stderr.splitlines()
    assert text.startswith(f"frazil: `frazil {line.split()[0]}` needs ")
    assert install_command("import" if line == "import a b" else "pipeline") in text
