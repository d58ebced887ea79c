"""Versions of a repository, as targets name them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import frazil
from frazil.cli.main import main
from frazil.errors import IcechunkError
from frazil.format.ids import id_to_text
from frazil.format.repo_info import RepoInfo
from frazil.handle.repository import context_of
from frazil.repository.catalog.ancestry import version_id
from frazil.storage.local import LocalStorage


def info_of(repo: frazil.Repository) -> RepoInfo:
    return context_of(repo).catalog.repo_info()


def message(repo: frazil.Repository, text: str) -> str:
    return repo.lookup_snapshot(id_to_text(version_id(info_of(repo), text))).message.partition("\n")[0]


def test_versions(repo: frazil.Repository) -> None:
    tip, second, first, _ = repo.ancestry(branch="main")
    expected = {
        "main": "Rename the title",
        "v1": "Create the arrays",
        tip.id: "Rename the title",
        tip.id[:6].lower(): "Rename the title",
        "main~": "Correct the first step",
        "~2": "Create the arrays",
        f"{tip.id[:8]}~1": "Correct the first step",
        second.written_at.isoformat(): "Correct the first step",
        f"dev@{first.written_at.isoformat()}": "Create the arrays",
        f"{second.written_at.isoformat()}~1": "Create the arrays",
    }
    assert {text: message(repo, text) for text in expected} == expected


def test_a_name_comes_before_a_time(repo: frazil.Repository) -> None:
    repo.create_branch("2026-11-01", "v1")
    repo.create_branch("dev~1", "v2")
    assert message(repo, "2026-11-01") == "Create the arrays"
    assert message(repo, "dev~1") == "Correct the first step"
    assert message(repo, "dev~1~1") == "Create the arrays"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("mian", "ref-not-found"),
        ("main~4", "invalid-argument"),
        ("1999-01-01", "no-snapshot-at-time"),
        ("2026-13-01", "invalid-argument"),
        ("00000000000000000000", "snapshot-not-found"),
    ],
)
def test_unknown_versions(repo: frazil.Repository, text: str, kind: str) -> None:
    with pytest.raises(IcechunkError) as caught:
        version_id(info_of(repo), text)
    assert caught.value.kind == kind


def test_a_profile_names_a_location(tmp_path: Path, beside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "profiles.toml").write_text(f'[prod]\nlocation = "{beside / "ice"}"\nregion = "eu-west-1"\n')
    assert main(["log", "prod@v1", "-n", "1"]) == 0
    assert "(v1) Create the arrays" in capsys.readouterr().out
    assert main(["log", "./prod"]) == 1
    assert "repository-not-found" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["ls", "tree", "cat"])
def test_commands_read_the_refs_once(command: str, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []

    def get(self: LocalStorage, key: str, start: int = 0, stop: int | None = None) -> Any:
        reads.append(key)
        return read(self, key, start, stop)

    read = LocalStorage.get
    monkeypatch.setattr(LocalStorage, "get", get)
    main([command, f"{own / 'ice'}:era5/t" if command == "cat" else str(own / "ice")])
    assert reads.count("repo") == 1
