"""Repositories: creation, refs, status, flags; ids and names of refs; the grammar of addresses."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.repository.version_1 import GROUP
from tests.support.errors import of_kind
from tests.support.faulty_storage import FaultyStorage

import frazil
from frazil.errors import ErrorKind, IcechunkError, InvalidInputError, SnapshotNotFoundError
from frazil.format.ids import id_to_text, prefix_bounds
from frazil.handle.addresses import open_address
from frazil.repository.session import commit_files
from frazil.repository.target import Target, parse_target


def commit(repo: frazil.Repository, branch: str = "main", **attributes: object) -> str:
    with repo.transaction(branch, message=str(attributes)) as store:
        zarr.open_group(store, mode="a").update_attributes(attributes)
    return repo.lookup_branch(branch)


def failing(kind: str, call: Any, *args: Any, **kwargs: Any) -> None:
    with pytest.raises(frazil.IcechunkError, check=of_kind(kind)):
        call(*args, **kwargs)


def test_create_open_exists(storage: frazil.Storage) -> None:
    assert not frazil.Repository.exists(storage)
    assert frazil.Repository.fetch_spec_version(storage) is None
    failing(ErrorKind.REPOSITORY_NOT_FOUND, frazil.Repository.open, storage)
    failing(ErrorKind.REPOSITORY_NOT_FOUND, frazil.Repository.fetch_config, storage)
    first = frazil.Repository.open_or_create(storage)
    assert frazil.Repository.exists(storage)
    assert frazil.Repository.fetch_spec_version(storage) == frazil.SpecVersion.v2
    assert frazil.Repository.open_or_create(storage).lookup_branch("main") == first.lookup_branch("main")
    failing(ErrorKind.PARENT_DIRECTORY_NOT_CLEAN, frazil.Repository.create, storage)
    failing(ErrorKind.PARENT_DIRECTORY_NOT_CLEAN, frazil.Repository.create, storage, check_clean_root=False)
    with pytest.raises(ValueError, match="spec_version must be 1 or 2"):
        frazil.Repository.create(storage, spec_version=3)


@pytest.mark.parametrize("name", ["a\nb", "a\0b", "\x1b[31ma", "a\x7f", "a\x85b", "x" * 1001, "\ud800"])
def test_names_that_new_refs_cannot_have(repo: frazil.Repository, name: str) -> None:
    tip = commit(repo, n=1)
    failing(ErrorKind.INVALID_REF_NAME, repo.create_branch, name, tip)
    failing(ErrorKind.INVALID_REF_NAME, repo.create_tag, name, tip)


@pytest.mark.parametrize("name", ["main ", " a", "a/b", "é", "e\u0301", "日本", "x" * 1000, "\u202ea", ".."])
def test_names_stay_as_they_are(repo: frazil.Repository, name: str) -> None:
    tip = commit(repo, n=1)
    repo.create_branch(name, tip)
    repo.create_tag(name, tip)
    assert (repo.list_branches(), repo.list_tags()) == ({"main", name}, {name})
    repo.delete_branch(name)
    failing(ErrorKind.REF_NOT_FOUND, repo.lookup_branch, name)
    assert repo.lookup_tag(name) == tip


def test_refs_of_other_programs_can_have_any_name(tmp_path: Path) -> None:
    icechunk = pytest.importorskip("icechunk")
    other = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path)))
    tip = other.lookup_branch("main")
    other.create_branch("a\nb", tip)
    repo = frazil.Repository.open(frazil.local_filesystem_storage(tmp_path))
    commit(repo, "a\nb", n=1)
    repo.delete_branch("a\nb")
    assert repo.list_branches() == {"main"}


def test_many_open_or_create_one_repository(storage: frazil.Storage) -> None:
    with ThreadPoolExecutor(6) as threads:
        repos = list(threads.map(lambda _: frazil.Repository.open_or_create(storage), range(6)))
    assert len({next(iter(repo.ops_log())).updated_at for repo in repos}) == 1


def test_a_creation_that_was_killed_can_be_done_again(storage: frazil.Storage) -> None:
    frazil.Repository.create(storage)
    storage.delete(["repo"])
    storage.put("probe/left", b"over")
    assert not frazil.Repository.exists(storage)
    commit(frazil.Repository.create(storage), n=1)
    storage.delete(["repo"])
    failing(ErrorKind.PARENT_DIRECTORY_NOT_CLEAN, frazil.Repository.create, storage)


def test_a_branch_deleted_under_a_session(repo: frazil.Repository) -> None:
    repo.create_branch("dev", commit(repo, n=1))
    session = repo.writable_session("dev")
    zarr.open_group(session.store, mode="a").update_attributes({"n": 2})
    repo.delete_branch("dev")
    failing(ErrorKind.BRANCH_NOT_FOUND, session.commit, "late")


def test_status_closes_the_repository_for_changes(repo: frazil.Repository) -> None:
    tip = commit(repo, n=1)
    session = repo.writable_session("main")
    zarr.open_group(session.store, mode="a").update_attributes({"n": 2})
    closed = frazil.RepoStatus(frazil.RepoAvailability.read_only, limited_availability_reason="maintenance")
    repo.set_status(closed)
    assert repo.status.limited_availability_reason == "maintenance"
    for call, *args in (
        (repo.writable_session, "main"),
        (repo.create_branch, "x", tip),
        (repo.create_tag, "x", tip),
        (repo.set_metadata, {}),
        (repo.save_config,),
        (session.commit, "late"),
    ):
        with pytest.raises(frazil.ReadOnlyError, match="maintenance") as error:
            call(*args)
        assert error.value.kind == ErrorKind.READ_ONLY_REPOSITORY
    assert repo.readonly_session("main").snapshot_id == tip
    repo.set_status(frazil.RepoStatus(frazil.RepoAvailability.online))
    session.commit("now")


def test_feature_flags(repo: frazil.Repository) -> None:
    tip = commit(repo, n=1)
    assert [flag.name for flag in repo.feature_flags()] == ["create_tag", "delete_tag", "move_node"]
    repo.create_tag("v1", tip)
    repo.set_feature_flag("create_tag", False)
    repo.set_feature_flag("delete_tag", False)
    failing(ErrorKind.FEATURE_FLAG_DISABLED, repo.create_tag, "v2", tip)
    failing(ErrorKind.FEATURE_FLAG_DISABLED, repo.delete_tag, "v1")
    assert {flag.name for flag in repo.disabled_feature_flags()} == {"create_tag", "delete_tag"}
    repo.set_feature_flag("create_tag", None)
    repo.create_tag("v2", tip)
    assert {flag.name for flag in repo.enabled_feature_flags()} == {"create_tag", "move_node"}
    failing(ErrorKind.INVALID_FEATURE_FLAG, repo.set_feature_flag, "nope", True)


#: Ids of snapshots: two begin alike, for 6 characters.
IDS = ["ABCD" * 5, "QRST2222222222222220", "QRST22333333333333330", "ZZZZ0000000000000000"]
ALIKE = "QRST22"


@pytest.fixture(params=[2, 1])
def named(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> frazil.Repository:
    storage = FaultyStorage(frazil.in_memory_storage(), lambda key, condition: None)
    repo = frazil.Repository.create(storage, spec_version=request.param)
    for number, text in enumerate(IDS):
        id_ = prefix_bounds(text[:19])[0]  # type: ignore[index]  # these are ids
        monkeypatch.setattr(commit_files, "new_object_id", lambda id_=id_: id_)
        session = repo.writable_session("main")
        session.workspace.set_node("/g", GROUP % number)
        session.commit(str(number))
    monkeypatch.undo()
    repo.create_branch("dev", repo.lookup_branch("main"))
    return repo


def whole(repo: frazil.Repository, number: int) -> str:
    return [entry.id for entry in repo.ancestry(branch="main")][-2 - number]


Use = Callable[[frazil.Repository, str], Any]
#: Takes an id or its first characters; the result is what it gives for the whole id.
BY_ID: dict[str, Use] = {
    "lookup": lambda repo, text: repo.lookup_snapshot(text).id,
    "ancestry": lambda repo, text: next(iter(repo.ancestry(snapshot_id=text))).id,
    "graph": lambda repo, text: str(repo.ancestry_graph(snapshot_id=text, plain=True)),
    "session": lambda repo, text: repo.readonly_session(snapshot_id=text).snapshot_id,
    "diff from": lambda repo, text: repr(repo.diff(from_snapshot_id=text, to_branch="main")),
    "diff to": lambda repo, text: repr(repo.diff(from_branch="main", to_snapshot_id=text)),
    "manifests": lambda repo, text: repo.list_manifest_files(text),
    "inspect snapshot": lambda repo, text: repo.inspect_snapshot(text)["id"],
    "inspect log": lambda repo, text: repo.inspect_transaction_log(text)["header"],
}


#: Takes names of refs too.
def _named(
    create: Callable[[str, str], None], lookup: Callable[[str], str], text: str, ref: str = "new"
) -> str:
    create(ref, text)
    return lookup(ref)


BY_NAME: dict[str, Use] = {
    "branch": lambda repo, text: _named(repo.create_branch, repo.lookup_branch, text),
    "tag": lambda repo, text: _named(repo.create_tag, repo.lookup_tag, text),
    "reset": lambda repo, text: _named(repo.reset_branch, repo.lookup_branch, text, "dev"),
}
INTEGRATION: dict[str, Use] = {
    "merge": lambda repo, text: repo.merge(text),
    "cherry-pick": lambda repo, text: repo.cherry_pick(text, "dev"),
    "revert": lambda repo, text: repo.revert(text, "dev"),
}


@pytest.mark.sample(14)
@pytest.mark.parametrize("use", BY_ID)
def test_the_first_characters_of_an_id(named: frazil.Repository, use: str) -> None:
    for number, short in ((0, "ABCD"), (1, ALIKE + "22"), (2, ALIKE + "33"), (3, "zzzz")):
        id_ = whole(named, number)
        for text in (short, short.lower(), id_[:19], id_.lower()):
            assert BY_ID[use](named, text) == BY_ID[use](named, id_)


@pytest.mark.parametrize("use", [*BY_ID, *BY_NAME, *INTEGRATION])
def test_what_can_mean_several(named: frazil.Repository, use: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        {**BY_ID, **BY_NAME, **INTEGRATION}[use](named, ALIKE)
    assert error.value.kind == ErrorKind.INVALID_SNAPSHOT_ID
    assert whole(named, 1) in str(error.value)
    assert whole(named, 2) in str(error.value)


@pytest.mark.parametrize("use", [*BY_ID, *BY_NAME])
def test_names_of_no_snapshot(named: frazil.Repository, use: str) -> None:
    act = {**BY_ID, **BY_NAME}[use]
    for text in ("4444", "4" * 19, "4" * 19 + "0"):
        with pytest.raises(SnapshotNotFoundError):
            act(named, text)
    for text in ("", "ABC", "UUUU", "ABCD" * 6, "main main", "é" * 5):
        with pytest.raises(InvalidInputError, check=of_kind(ErrorKind.INVALID_SNAPSHOT_ID)):
            act(named, text)


@pytest.mark.parametrize("use", BY_NAME)
def test_a_name_that_begins_an_id(named: frazil.Repository, use: str) -> None:
    named.create_branch("ABCD", whole(named, 0))
    assert BY_NAME[use](named, "ABCD") == whole(named, 0)  # both are the same
    named.create_tag("ZZZZ", whole(named, 1))
    with pytest.raises(InvalidInputError, match="the tag `ZZZZ`"):
        BY_NAME["branch"](named, "ZZZZ")
    named.create_branch("twice", whole(named, 0))
    named.create_tag("twice", whole(named, 1))
    with pytest.raises(InvalidInputError, match="the branch `twice`"):
        BY_NAME["branch"](named, "twice")


def test_a_whole_id_costs_nothing_more(named: frazil.Repository) -> None:
    storage = named.storage
    assert isinstance(storage, FaultyStorage)
    id_ = whole(named, 0)
    storage.gets.clear()
    named.create_tag("v1", id_)
    assert storage.gets == ["repo" if named.spec_version == 2 else "refs/tag.v1/ref.json"]


@given(st.binary(min_size=12, max_size=12), st.integers(1, 20))
def test_bounds(id_: bytes, length: int) -> None:
    bounds = prefix_bounds(id_to_text(id_)[:length])
    assert bounds is not None
    first, last = bounds
    assert first <= id_ <= last
    assert id_to_text(first)[:length] == id_to_text(last)[:length] == id_to_text(id_)[:length]


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
