"""Spec version 1: what is reported as done is there, what is looked at is all that is read."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import zarr
from tests.repository.version_1 import GROUP, commit, copy_of, files_of, with_history
from tests.support.errors import of_kind
from tests.support.faulty_storage import Fault, FaultyStorage

import frazil
from frazil.errors import ErrorKind
from frazil.format.flexbuffer import _DUMPERS
from frazil.format.ids import CONFIG, REPO, id_from_text, snapshot_key
from frazil.format.snapshot import decode_snapshot, encode_snapshot
from frazil.repository.catalog.files_v1 import RefKind, ref_key
from frazil.repository.settings.config_document import from_document
from frazil.repository.settings.config_yaml import dump_config, load_config
from frazil.storage.local import LocalStorage
from frazil.storage.memory import MemoryStorage


@pytest.fixture(scope="module")
def template() -> MemoryStorage:
    storage = MemoryStorage()
    with_history(storage)
    return storage


def test_the_commit_is_in_the_history_after_commits_of_others(template: MemoryStorage) -> None:
    """The answer to a commit is lost, and before we look another one follows it."""
    inner = copy_of(template)
    busy = threading.local()
    faults = iter([Fault.ANSWER_LOST])

    def choose(key: str, condition: Any) -> Fault | None:
        if not key.startswith("refs/branch.main/") or getattr(busy, "yes", False):
            return None
        return next(faults, None)

    storage = FaultyStorage(inner, choose)
    original = storage.put

    def put(key: str, *arguments: Any) -> Any:
        try:
            return original(key, *arguments)
        finally:
            if key.startswith("refs/branch.main/") and not getattr(busy, "yes", False):
                busy.yes = True
                commit(frazil.Repository.open(inner), 10)

    storage.put = put  # type: ignore[method-assign, assignment]
    id_ = commit(frazil.Repository.open(storage), 9)
    history = [entry.message for entry in frazil.Repository.open(inner).ancestry(branch="main")]
    assert history[:3] == ["commit 10", "commit 9", "commit 4"]
    assert frazil.Repository.open(inner).lookup_snapshot(id_).message == "commit 9"


def test_two_that_create_one_ref(template: MemoryStorage) -> None:
    storage = copy_of(template)
    repo = frazil.Repository.open(storage)
    info, other = repo._info(), repo._info()
    tip = repo.lookup_branch("main")
    # Refs to one snapshot are not the same bytes.
    repo.create_branch("x", tip)
    repo.create_branch("y", tip)
    assert storage.get("refs/branch.x/ref.json") != storage.get("refs/branch.y/ref.json")
    for act, name in ((repo.create_tag, "t"), (repo.create_branch, "x")):
        with pytest.raises(frazil.IcechunkError):
            act(name, tip)
    assert (info.branches["x"], other.tags["t"]) == (id_from_text(tip), id_from_text(repo.lookup_tag("t")))


# What is read


@pytest.fixture
def long() -> FaultyStorage:
    """A hundred commits."""
    storage = FaultyStorage(MemoryStorage(), lambda key, condition: None)
    repo = frazil.Repository.create(storage, spec_version=1)
    for n in range(100):
        commit(repo, n)
    return storage


def test_opening_a_branch_reads_no_history(long: FaultyStorage) -> None:
    repo = frazil.Repository.open(long)
    long.gets.clear()
    session = repo.writable_session("main")
    session.workspace.set_node("/g", GROUP % 7)
    session.commit("one more")
    assert len([key for key in long.gets if key.startswith("snapshots")]) == 1
    assert len([key for key in long.gets if key.startswith("refs")]) == 2
    long.gets.clear()
    newest = [entry.message for entry, _ in zip(repo.ancestry(branch="main"), range(5), strict=False)]
    assert newest == ["one more", "commit 99", "commit 98", "commit 97", "commit 96"]
    assert len(long.gets) < 12
    when = repo.lookup_snapshot(repo.lookup_branch("main")).written_at
    assert repo.readonly_session("main", as_of=when).snapshot_id == repo.lookup_branch("main")


def test_a_history_is_read_once_and_side_by_side(long: FaultyStorage) -> None:
    repo = frazil.Repository.open(long)
    long.gets.clear()
    messages = [entry.message for entry in repo.ancestry(branch="main")]
    assert messages == [*(f"commit {n}" for n in reversed(range(100))), "Repository initialized"]
    assert len([key for key in long.gets if key.startswith("snapshots")]) == 101
    long.gets.clear()
    assert len(list(repo.ancestry(branch="main"))) == 101
    assert not [key for key in long.gets if key.startswith("snapshots")]
    assert str(repo.ancestry_graph(plain=True)).count("commit") == 100


def test_ancestors_in_a_circle() -> None:
    storage = MemoryStorage()
    repo = frazil.Repository.create(storage, spec_version=1)
    ids = [id_from_text(commit(repo, n)) for n in range(2)]
    key = snapshot_key(ids[0])
    snapshot = replace(decode_snapshot(storage.get(key), key), parent_id=ids[1])
    storage.put(key, encode_snapshot(snapshot))
    with pytest.raises(frazil.FormatError, match="cycle"):
        list(frazil.Repository.open(storage).ancestry(branch="main"))


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"snapshot": 1}', b'{"snapshot": "x"}', b"\xff", b"[" * 9999]
)
def test_damaged_refs(data: bytes, template: MemoryStorage) -> None:
    storage = copy_of(template)
    storage.put("refs/branch.dev/ref.json", data)
    with pytest.raises(frazil.FormatError, match=r"branch\.dev"):
        frazil.Repository.open(storage).lookup_branch("dev")


def test_files_that_are_no_refs(template: MemoryStorage) -> None:
    storage = copy_of(template)
    for key in (
        "refs/x",
        "refs/branch/ref.json",
        "refs/other.a/ref.json",
        "refs/branch.a/b/ref.json",
        "snapshots/x",
    ):
        storage.put(key, b"?")
    repo = frazil.Repository.open(storage)
    assert repo.list_branches() == {"main", "dev"}
    assert repo.list_tags() == {"t"}
    assert len(list(repo.ancestry(branch="main"))) == 4


# Creating, opening, pickling


def test_the_kind_of_a_repository(template: MemoryStorage) -> None:
    storage = copy_of(template)
    repo = frazil.Repository.open(storage)
    assert repo.spec_version == frazil.SpecVersion.v1
    assert "v1" in repr(repo).splitlines()[0]
    assert frazil.Repository.exists(storage)
    assert frazil.Repository.fetch_spec_version(storage) == frazil.SpecVersion.v1
    assert repo.reopen().spec_version == frazil.SpecVersion.v1
    assert repo.reopen().config == repo.config
    assert frazil.Repository.open_or_create(storage).spec_version == frazil.SpecVersion.v1
    assert REPO not in files_of(storage)
    new = frazil.Repository.open_or_create(MemoryStorage(), create_version=1)
    assert new.spec_version == frazil.SpecVersion.v1
    assert len(files_of(new.storage)) == 2


def test_two_creators() -> None:
    """The second is done between the first one's snapshot and its ``main``."""
    inner = MemoryStorage()
    first, second = (frazil.RepositoryConfig(inline_chunk_threshold_bytes=n) for n in (1, 2))

    def choose(key: str, condition: Any) -> None:
        if key.startswith("refs") and not inner.head(key):
            frazil.Repository.create(inner, second, spec_version=1, check_clean_root=False)

    with pytest.raises(frazil.InvalidInputError, check=of_kind(ErrorKind.PARENT_DIRECTORY_NOT_CLEAN)):
        frazil.Repository.create(FaultyStorage(inner, choose), first, spec_version=1)
    saved = frazil.Repository.fetch_config(inner)
    assert saved is not None
    assert saved.inline_chunk_threshold_bytes == 2


# config.yaml


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [1]\nb: *a",
        "- 1",
        "5",
        "~",
        "--- ",
        "[" * 2000,
        "caching: 5",
        "virtual_chunk_containers: {a: !s3 {}}",
        "\x00",
        "compression: {algorithm: lz4}",
        "inline_chunk_threshold_bytes: 2020-01-01",
        "inline_chunk_threshold_bytes: 010",
        "inline_chunk_threshold_bytes: !!int x",
        "inline_chunk_threshold_bytes: !!bool x",
        "a: !!timestamp x",
        "a: !!binary eA==",
        "a: !!set {b}",
        "compression: {algorithm: !zstd {}}",
        "compression: {algorithm: {a: ~}}",
        "compression: {algorithm: [zstd]}",
        "? [a]\n: 1",
        "x: !!python/object:os.system 1",
    ],
)
def test_hostile_configurations(text: str, template: MemoryStorage) -> None:
    storage = copy_of(template)
    storage.put(CONFIG, text.encode())
    with pytest.raises(frazil.FormatError, check=of_kind(ErrorKind.CONFIG_DESERIALIZATION)):
        frazil.Repository.open(storage)


def test_words_of_a_configuration() -> None:
    text = "a: yes\nb: 2020-01-01\nc: 1:30\nd: 0x10\ne: 1e3\nf: ~\ng: 'on'\nh: !Axis 2\n"
    text += "i: !DimensionName '2'\nj: .inf"
    wanted = {"a": "yes", "b": "2020-01-01", "c": "1:30", "d": 16, "e": 1000.0, "f": None, "g": "on",
              "h": {"Axis": 2}, "i": {"DimensionName": "2"}, "j": float("inf")}  # fmt: skip
    assert load_config(text.encode()) == wanted
    assert load_config(dump_config({"a": "yes", "b": ["0x10", "1e3", "", "null", "é\n x"]})) == {
        "a": "yes",
        "b": ["0x10", "1e3", "", "null", "é\n x"],
    }


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n"])
def test_a_configuration_without_content(text: str, template: MemoryStorage) -> None:
    storage = copy_of(template)
    storage.put(CONFIG, text.encode())
    assert frazil.Repository.fetch_config(storage) == frazil.RepositoryConfig()


def test_names_of_variants_behind_tags_and_without_quotes() -> None:
    text = "compression: {algorithm: !zstd , level: 99}\n"
    text += "manifest: {preload: {preload_if: !and [true, !false , 'true']}}\n"
    config = from_document(load_config(text.encode()))
    assert config.compression is not None
    assert config.compression.algorithm is frazil.CompressionAlgorithm.Zstd
    assert config.manifest is not None
    assert config.manifest.preload is not None
    condition = frazil.ManifestPreloadCondition
    assert config.manifest.preload.preload_if == condition.and_conditions(
        [condition.true(), condition.false(), condition.true()]
    )


def test_numbers_that_json_does_not_have(template: MemoryStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer's MessagePack can hold them; the next version can't."""
    storage = copy_of(template)
    session = frazil.Repository.open(storage).writable_session("main")
    zarr.group(session.store)
    monkeypatch.setitem(_DUMPERS, 1, lambda value: bytes.fromhex("92cb7ff8000000000000ca7f800000"))
    id_ = session.commit("x", metadata={"a": 1})
    monkeypatch.undo()
    repo = frazil.Repository.open(storage)
    upgraded = frazil.upgrade_icechunk_repository(repo, dry_run=False)
    assert upgraded.lookup_snapshot(id_).metadata == {"a": [None, None]}


def test_small_letters_in_a_ref(template: MemoryStorage) -> None:
    storage = copy_of(template)
    main = bytes(storage.get("refs/branch.main/ref.json"))
    storage.put("refs/tag.small/ref.json", b'{"snapshot":"%s"}' % main[13:33].lower())
    repo = frazil.Repository.open(storage)
    assert repo.lookup_tag("small") == repo.lookup_branch("main")


def test_names_are_encoded_where_the_reference_does(tmp_path: Path) -> None:
    """Its client for S3 takes names as they are; all its others spell some characters in percent."""
    options = frazil.S3Options(region="us-east-1")
    ours = frazil.Storage
    native = [
        frazil.s3_storage(bucket="b", prefix="p", region="us-east-1"),
        frazil.r2_storage(bucket="b", prefix="p", account_id="x"),
        frazil.tigris_storage(bucket="b", prefix="p", region="auto"),
    ]
    others = [
        frazil.in_memory_storage(),
        frazil.local_filesystem_storage(str(tmp_path)),
        frazil.gcs_storage(bucket="b", prefix="p"),
        frazil.azure_storage(account="a", container="b", prefix="p"),
        frazil.http_storage("http://127.0.0.1:1/"),
        ours.new_s3_object_store(options, "b", "p"),
    ]
    assert {ref_key(storage, RefKind.TAG, "a%é") for storage in native} == {"refs/tag.a%é/ref.json"}
    assert {ref_key(storage, RefKind.TAG, "a%é") for storage in others} == {"refs/tag.a%25%C3%A9/ref.json"}


@pytest.mark.parametrize("act", ["revert", "cherry_pick"])
def test_the_changes_of_a_commit_are_unavailable_after_an_expiration(act: str) -> None:
    """Its parent is then the first version, and a revert would delete everything."""
    repo = with_history(MemoryStorage())
    repo.create_branch("other", repo.lookup_branch("main"))
    if act == "revert":
        repo.revert("main", "other")  # before that it is known
    tip = repo.lookup_branch("main")
    repo.expire_snapshots(datetime.now(UTC))
    repo = frazil.Repository.open(repo.storage)
    with pytest.raises(frazil.SessionStateError, check=of_kind(ErrorKind.REBASE_TX_LOG_PRUNED)):
        getattr(repo, act)("main", "main" if act == "revert" else "other")
    assert repo.lookup_branch("main") == tip


class FoldingStorage(LocalStorage):
    """A folder on a file system that does not distinguish upper and lower case."""

    def _path(self, key: str) -> str:
        return super()._path(key.lower() if key.lower().startswith("refs/") else key)

    def with_settings(self, settings: Any) -> FoldingStorage:
        return FoldingStorage(self._root, settings)


def test_names_differ_by_case_on_every_file_system(tmp_path: Path) -> None:
    storage = FoldingStorage(tmp_path)
    repo = frazil.Repository.create(storage, spec_version=1)
    tip = repo.lookup_branch("main")
    repo.create_branch("dev", tip)
    repo.create_tag("v1", tip)
    for act in (
        lambda: repo.delete_branch("DEV"),
        lambda: repo.lookup_branch("MAIN"),
        lambda: repo.lookup_tag("V1"),
        lambda: repo.delete_tag("V1"),
        lambda: repo.reset_branch("Dev", tip),
        lambda: repo.writable_session("Main"),
    ):
        with pytest.raises(frazil.RefNotFoundError):
            act()
    for create in (repo.create_branch, repo.create_tag):
        with pytest.raises(frazil.AlreadyExistsError, match="for the file system"):
            create("DEV" if create == repo.create_branch else "V1", tip)
    assert (repo.list_branches(), repo.list_tags()) == ({"main", "dev"}, {"v1"})
    repo.delete_branch("dev")
    assert repo.list_branches() == {"main"}
