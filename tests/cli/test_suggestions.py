"""What a shell completes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from frazil.cli.main import frazil


def completed(*words: str) -> list[str]:
    """What the shell offers for the last word."""
    items = ShellComplete(frazil, {}, "frazil", "_FRAZIL_COMPLETE").get_completions(
        list(words[:-1]), words[-1]
    )
    return [item.value if item.type == "plain" else f"{item.type}:{item.value}" for item in items]


def test_commands_and_options(beside: Path) -> None:
    assert completed("che") == ["cherry-pick"]
    assert "--graph" in completed("log", "--g")


def test_versions_and_paths(beside: Path) -> None:
    assert completed("log", "ic") == ["file:ic"]
    assert completed("log", "ice@") == ["ice@dev", "ice@main", "ice@v1", "ice@v2"]
    assert completed("log", "ice@v") == ["ice@v1", "ice@v2"]
    assert completed("cat", "ice:er") == ["ice:/era5"]
    assert completed("cat", "ice@dev:era5/") == ["ice@dev:/era5/p", "ice@dev:/era5/t", "ice@dev:/era5/time"]
    assert completed("merge", "ice", "d") == ["dev"]
    assert completed("branch", "ice", "--delete", "m") == ["main"]
    assert completed("diff", "ice@v1", "v") == ["v1", "v2"]


def test_nothing_without_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for word in ("absent@", "absent:", "@@@", "absent@x:y"):
        assert completed("log", word) == []
    assert completed("merge", "absent", "m") == []


def test_a_target_is_one_word_in_bash(run: Callable[..., str]) -> None:
    program = run("completion bash")
    assert "COMP_WORDBREAKS" not in run("completion zsh")
    script = f"COMP_WORDBREAKS=' @:='; {program}\nprintf %s \"$COMP_WORDBREAKS\""
    answer = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout == " ="
