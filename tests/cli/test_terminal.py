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
    repo = frazil.Repository.open(own / "ice")
    for answer, text, status in (
        ("n\n", "Nothing was changed", 3),
        ("\x03", "interrupted. The repository is valid", 130),
        ("y\n", "deleted the branch dev", 0),
    ):
        process = spawn("branch ice --delete dev")
        process.expect(r"Delete the branch dev\?.*\[y/N\]: ")
        process.send(answer)
        process.expect(text)
        process.expect(pexpect.EOF)
        process.close()
        assert process.exitstatus == status
        assert ("dev" in repo.list_branches()) == (status != 0)
    assert "verify" in output("verify ice --level exists")
