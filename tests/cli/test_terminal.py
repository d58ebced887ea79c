"""The command on a real terminal: colours, width, pager, questions, Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pexpect  # type: ignore[import-untyped]  # it ships no types
import pytest
from tests.support.patience import patience

import frazil

pytestmark = pytest.mark.deep


def spawn(line: str, columns: int = 110, **variables: str) -> pexpect.spawn:
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in ("NO_COLOR", "PAGER", "LESS", "COLUMNS", "LINES")
    }
    return pexpect.spawn(
        sys.executable,
        ["-m", "frazil", *line.split()],
        env={**environment, "TERM": "xterm-256color", "PAGER": "cat", **variables},
        encoding="utf-8",
        timeout=patience(20),
        dimensions=(24, columns),
        # A shell starts background jobs, such as the tests, with SIGINT ignored. Processes inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def output(line: str, columns: int = 110, **variables: str) -> str:
    process = spawn(line, columns, **variables)
    text = str(process.read())
    process.close()
    assert process.exitstatus == 0, text
    return text


def test_a_terminal(own: Path) -> None:
    assert "\x1b[33m" in output("log ice")
    assert "\x1b" not in output("log ice", NO_COLOR="1")
    assert "\x1b" not in output("log ice --json")
    assert max(map(len, output("ops ice", columns=40).splitlines())) == 40
    # a question
    process = spawn("branch ice --delete dev")
    process.expect(r"Delete the branch dev\?.*\[y/N\]: ")
    process.sendline("n")
    process.expect("Nothing was changed")
    process.expect(pexpect.EOF)
    process.close()
    assert process.exitstatus == 3
    # Ctrl-C
    process = spawn("branch ice --delete dev")
    process.expect(r"\[y/N\]: ")
    process.sendintr()
    process.expect("interrupted. The repository is valid")
    process.expect(pexpect.EOF)
    process.close()
    assert process.exitstatus == 130
    repo = frazil.Repository.open(frazil.local_filesystem_storage(str(own / "ice")))
    assert "dev" in repo.list_branches()
    # a yes, and progress
    process = spawn("branch ice --delete dev")
    process.expect(r"\[y/N\]: ")
    process.sendline("y")
    process.expect("deleted the branch dev")
    process.expect(pexpect.EOF)
    assert "dev" not in repo.list_branches()
    assert "verify" in output("verify ice --level exists")
