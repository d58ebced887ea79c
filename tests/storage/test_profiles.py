"""Profiles: names of locations."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.errors import InvalidInputError
from frazil.storage.profiles import Profile, profile_of


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "names.toml"
    monkeypatch.setenv("FRAZIL_PROFILES", str(path))
    return path


def test_other_locations_are_no_profiles(file: Path) -> None:
    assert profile_of("ice") == Profile("ice")  # without a file
    file.write_text('[ice]\nlocation = "s3://bucket/ice"\nanonymous = true\n')
    assert profile_of("ice") == Profile("s3://bucket/ice", {"anonymous": True})
    for location in ("./ice", "s3://ice", "a/ice", "ice.zarr", "."):
        assert profile_of(location) == Profile(location)


def test_a_variable_comes_before_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text('[my-ice]\nlocation = "s3://bucket/ice"\n')
    monkeypatch.setenv("FRAZIL_PROFILE_MY_ICE", "gs://bucket/ice")
    assert profile_of("my-ice") == Profile("gs://bucket/ice")


def test_the_usual_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FRAZIL_PROFILES", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "frazil").mkdir()
    (tmp_path / "frazil" / "profiles.toml").write_text('[a]\nlocation = "b"\n')
    assert profile_of("a") == Profile("b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[ice", "must be TOML"),
        ("ice = 1", "must have a location"),
        ("[ice]\nregion = 'eu'", "must have a location"),
        ("[ice]\nlocation = 'b'\nsecret_access_key = 'k'", "Credentials come from the environment"),
        ("[ice]\nlocation = 'https://me:word@host/ice'", "must not have a user"),
        ("[ice]\nlocation = 'b'\nendpoint_url = 'http://me:word@host'", "must not have a user"),
    ],
)
def test_wrong_profiles(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(InvalidInputError, match=message) as caught:
        profile_of("ice")
    assert "word" not in str(caught.value).replace("password", "")
