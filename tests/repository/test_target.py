"""The grammar of `LOCATION[@VERSION][:PATH]`, and `open_address`."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.support.errors import of_kind

import frazil
from frazil.errors import IcechunkError, InvalidInputError
from frazil.handle.addresses import open_address
from frazil.repository.target import Target, parse_target

TABLE = {
    "ice": ("ice", None, None),
    "~/ice@v1": ("~/ice", "v1", None),
    "ice@main~3": ("ice", "main~3", None),
    "@main~1": (".", "main~1", None),
    ":t": (".", None, "/t"),
    "ice:": ("ice", None, "/"),
    "ice:era5/t": ("ice", None, "/era5/t"),
    "ice@v1:a@b:c": ("ice", "v1", "/a@b:c"),
    # a name before a colon is a scheme only before slashes
    "s3:/t": ("s3", None, "/t"),
    "s3://bucket@v1:t": ("s3://bucket", "v1", "/t"),
    "s3://bucket/a/b@dev:/t": ("s3://bucket/a/b", "dev", "/t"),
    "az://account/container/ice:t": ("az://account/container/ice", None, "/t"),
    "file:/data/ice@v1": ("file:/data/ice", "v1", None),
    # the server of a URL
    "https://me:secret@host:8080/ice@v1:t": ("https://me:secret@host:8080/ice", "v1", "/t"),
    "abfss://box@mine.dfs.core.windows.net/ice@v1": ("abfss://box@mine.dfs.core.windows.net/ice", "v1", None),
    # drives
    r"C:\data\ice": (r"C:\data\ice", None, None),
    r"c:\data\ice@v1:t": (r"c:\data\ice", "v1", "/t"),
    "C:/data/ice": ("C:/data/ice", None, None),
    "c:/data/ice@v1:t": ("c:/data/ice", "v1", "/t"),
    "C:t": ("C", None, "/t"),
    "C@v1:/t": ("C", "v1", "/t"),
    # doubled characters
    "run-12::00": ("run-12:00", None, None),
    "me@@work@v1": ("me@work", "v1", None),
    "s3://bucket/a::b@@c:t": ("s3://bucket/a:b@c", None, "/t"),
    "ice@a::b:t": ("ice", "a:b", "/t"),
    # times
    "ice@2026-11-01:t": ("ice", "2026-11-01", "/t"),
    "ice@2026-11-01T12:00:t": ("ice", "2026-11-01T12:00", "/t"),
    "ice@2026-11-01T12:00:30.5+02:00:/t": ("ice", "2026-11-01T12:00:30.5+02:00", "/t"),
    "ice@2026-11-01 12:00Z:t": ("ice", "2026-11-01 12:00Z", "/t"),
    "ice@dev@2026-11-01T12:00~2:t": ("ice", "dev@2026-11-01T12:00~2", "/t"),
}


@pytest.mark.parametrize("text", TABLE)
def test_texts(text: str) -> None:
    target = parse_target(text)
    assert target == Target(*TABLE[text])
    assert parse_target(str(target)) == target


@pytest.mark.parametrize("text", ["ice@", "ice@:t", "s3://bucket/ice@", "@", "a\0b"])
def test_missing_parts(text: str) -> None:
    with pytest.raises(InvalidInputError, match="must", check=of_kind("invalid-argument")):
        parse_target(text)
    # an empty variable of a shell must not select the current folder
    with pytest.raises(InvalidInputError, match="must not be empty"):
        parse_target("")


_TEXT = st.text(st.sampled_from("ab/.~@:-0123456789T\\"), max_size=12)
_BEGINNINGS = st.sampled_from(["", "/", "./", "s3://bucket/", "https://h:1/", "file:///", "C:\\", "C:/"])


@given(_BEGINNINGS, _TEXT, st.none() | _TEXT, st.none() | _TEXT)
def test_every_target_has_a_text(beginning: str, rest: str, version: str | None, path: str | None) -> None:
    location = beginning + rest
    # doubled characters end before the version: one of them cannot be its first character
    assume(version is None or (version and version[0] not in "@:"))
    # a location that is a URL by chance is a URL
    assume(location and (beginning or re.match(r"[A-Za-z]+:", rest) is None))
    segments = [each for each in (path or "").split("/") if each]
    target = Target(location, version, None if path is None else "/" + "/".join(segments))
    assert parse_target(str(target)) == target


@given(st.text(max_size=40))
def test_any_text_is_a_target_or_an_error(text: str) -> None:
    try:
        target = parse_target(text)
    except InvalidInputError:
        return
    assert parse_target(str(target)).path == target.path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository whose tag has the value 1, and whose branch main has the value 2."""
    repo = frazil.Repository.create(tmp_path / "ice")
    for value in (1, 2):
        with repo.transaction("main", message=f"{value}") as store:
            zarr.create_array(store, name="g/t", data=np.array([value]), overwrite=True)
        if value == 1:
            repo.create_tag("v1", snapshot_id=repo.lookup_branch("main"))
    return tmp_path / "ice"


def value(address: str | Path, **options: object) -> int:
    session, path = open_address(address, **options)  # type: ignore[arg-type]
    return int(frazil.read(session, "g/t" if path == "/" else path)[0])


def test_a_version_is_in_the_address_or_in_arguments(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert value(folder) == value(f"{folder}:g/t") == value(f"file://{folder}", branch="main") == 2
    assert value(f"{folder}@v1:g/t") == value(folder, tag="v1") == value(f"{folder}@main~1") == 1
    past = datetime(2000, 1, 1, tzinfo=UTC)
    for options in ({"tag": "v1"}, {"branch": "main"}, {"as_of": past}):
        with pytest.raises(IcechunkError, match="not in both"):
            value(f"{folder}@v1", **options)
    with pytest.raises(IcechunkError, match="2000"):
        value(folder, as_of=past)
    monkeypatch.setenv("FRAZIL_PROFILE_PROD", str(folder))
    assert value("prod@v1") == 1


def test_a_path_object_is_a_folder(folder: Path) -> None:
    other = folder.rename(folder.with_name("ice@v1"))
    assert value(other) == 2
