"""The Python code of the README runs from top to bottom, and prints what its comments say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    parts = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(parts) == 2
    names: dict[str, Any] = {}
    exec(compile("\n".join(parts), str(README), "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    assert printed[:2] == ["273.15", "275.15"]
    assert printed[2].startswith("['Make the first year warmer', 'First version'")
    assert printed[-2:] == ["True True", "True"]
    assert names["report"].ok
    assert names["again"].done_before
