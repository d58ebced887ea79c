from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import PurePath
from typing import TYPE_CHECKING

import pytest
from tests.support.forks import in_child

from frazil.errors import ErrorKind, InvalidInputError, StorageError
from frazil.storage import files
from frazil.storage.base import IfAbsent, IfVersion, Refused, Replacement, Storage, Stored, Version
from frazil.storage.files import Flusher
from frazil.storage.local import LocalStorage, local_filesystem_storage
from frazil.testing.storage_suite import StorageSuite, add_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class TestLocalStorage(StorageSuite):
    rounds = 25

    @pytest.fixture
    def storage(self, tmp_path: Path) -> Storage:
        return LocalStorage(tmp_path / "made" / "lazily")


class TestLocalStorageWithoutHardLinks(StorageSuite):
    many = 20

    @pytest.fixture
    def storage(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Storage:
        def no_links(source: str, target: str) -> None:
            raise OSError(errno.EPERM, "Operation not permitted", source, None, target)

        monkeypatch.setattr(os, "link", no_links)
        return LocalStorage(tmp_path)


def test_a_name_that_cannot_be_looked_up_is_not_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system without links, a rename would replace the object."""

    def refuse(*args: object, **options: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    storage = LocalStorage(tmp_path)
    first = storage.put("a", b"first")
    assert isinstance(first, Stored)
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        patch.setattr(os, "lstat", refuse)
        with pytest.raises(StorageError, match="permission denied"):
            storage.put("a", b"second", IfAbsent())
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", refuse)
        with pytest.raises(StorageError, match="permission denied"):  # not `Refused`: no writer was faster
            storage.put("a", b"second", IfVersion(first.version))
    assert bytes(storage.get("a")) == b"first"


@pytest.mark.parametrize("flush", [True, False])
def test_a_server_refuses_bytes_when_the_file_is_closed(
    flush: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a flush, a network file system reports only here that it has no space."""
    close = os.close

    def refuse(descriptor: int) -> None:
        close(descriptor)
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    storage = LocalStorage(tmp_path, flush=flush)
    first = storage.put("a", b"first")
    assert isinstance(first, Stored)
    calls: list[Callable[[], object]] = [
        lambda: storage.put("b", b"new", IfAbsent()),
        lambda: storage.put_many([("c", b"new")]),
        lambda: storage.put("a", b"second", IfVersion(first.version)),
    ]
    monkeypatch.setattr(os, "close", refuse)
    for call in calls:
        if flush:
            call()
        else:
            with pytest.raises(StorageError) as error:
                call()
            assert error.value.kind == ErrorKind.STORAGE_FULL
    assert bytes(storage.get("a")) == (b"second" if flush else b"first")
    assert not [path for path in tmp_path.iterdir() if "#" in path.name and not path.name.endswith("#0")]


@pytest.mark.deep
def test_two_instances_on_one_root_exclude_each_other(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "root")
    instances = [LocalStorage(tmp_path / "root"), LocalStorage(link)]
    instances[0].put("repo", b"begin", IfAbsent())

    def work(name: int) -> None:
        for number in range(50):
            add_line(instances[name % 2], "repo", f"{name}-{number}")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert len(bytes(instances[0].get("repo")).split(b"\n")) == 201


def test_works_in_a_forked_child(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    version = storage.put("repo", b"1", IfAbsent())
    assert isinstance(version, Stored)
    assert in_child(lambda: isinstance(storage.put("repo", b"2", IfVersion(version.version)), Stored))
    assert storage.put("repo", b"3", IfVersion(version.version)) == Refused()


# files


def test_no_directory_before_the_first_write(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "a")
    assert [*storage.list("")] == []
    assert storage.head("repo") is None
    storage.delete(["repo", "chunks/a"])
    assert storage.put("repo", b"", IfVersion(Version("x"))) == Refused()
    assert not (tmp_path / "a").exists()


def test_relative_paths_are_fixed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    storage = LocalStorage("here")
    monkeypatch.chdir("/")
    storage.put("repo", b"x")
    assert (tmp_path / "here" / "repo").read_bytes() == b"x"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for path, expected in (("~/weather", tmp_path / "home/weather"), (PurePath("~"), tmp_path / "home")):
        home = local_filesystem_storage(path)
        assert isinstance(home, LocalStorage)
        assert home.root == expected


def test_hidden_files_are_not_objects(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.put("chunks/a", b"x")
    for name in ("a#1", "a#12345678901234567890", "repo#0"):
        (tmp_path / "chunks" / name).touch()
        with pytest.raises(InvalidInputError):
            storage.get(f"chunks/{name}")
    storage.put("chunks/a#b", b"x")
    assert {info.key for info in storage.list("")} == {"chunks/a", "chunks/a#b"}
    assert storage.delete_abandoned(datetime.now(UTC) - timedelta(hours=1)) == 0
    assert storage.delete_abandoned(datetime.now(UTC) + timedelta(hours=1)) == 2
    assert sorted(os.listdir(tmp_path / "chunks")) == ["a", "a#b", "repo#0"]


def test_objects_are_never_rewritten_in_place(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.put("repo", b"one", IfAbsent())
    for _ in range(3):
        data, version = storage.get_versioned("repo")
        with open(tmp_path / "repo", "rb") as held:
            storage.backup("repo", version, data, "overwritten/repo")
            assert os.stat(tmp_path / "overwritten" / "repo").st_ino == os.fstat(held.fileno()).st_ino
            assert isinstance(storage.put("repo", bytes(data) + b"+", IfVersion(version)), Stored)
            assert held.read() == data
        assert bytes(storage.get("overwritten/repo")) == data


def test_a_stopped_lock_holder_is_an_error_not_a_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path)
    stored = storage.put("repo", b"1", IfAbsent())
    assert isinstance(stored, Stored)
    code = (
        "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); "
        "print(flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "repo#0")], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        monkeypatch.setattr(files, "LOCK_SECONDS", 0.2)
        with pytest.raises(StorageError) as caught:
            storage.put("repo", b"2", IfVersion(stored.version))
        assert caught.value.kind == ErrorKind.SEMAPHORE_ACQUIRE
        holder.kill()
    assert isinstance(storage.put("repo", b"2", IfVersion(stored.version)), Stored)


def test_a_replacement_waits_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalStorage(tmp_path)
    rounds: list[int] = []
    _put(storage, b"1")
    monkeypatch.setattr(
        Flusher, "flush_together", lambda self, files, names: rounds.append(len(files) + len(set(names)))
    )
    monkeypatch.setattr(Flusher, "flush_names", lambda self, path: rounds.append(1))
    for number in range(2):
        old, version = storage.get_versioned("repo")
        replacement = Replacement("repo", b"2%d" % number, version, old, f"overwritten/{number}")
        with storage.open_replacement(replacement, [(f"snapshots/{number}", b"new")]) as ready:
            assert isinstance(ready.finish(), Stored)
    # The new bytes and the new object, with the directories of the object and of the backup; then the root.
    # The first replacement also flushes the old bytes, because another program may have written them.
    assert rounds == [5, 1, 4, 1]


def _put(storage: LocalStorage, data: bytes) -> Version:
    stored = storage.put("repo", data, IfAbsent())
    assert isinstance(stored, Stored)
    return stored.version


def test_without_flush_nothing_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise AssertionError("a flush")

    monkeypatch.setattr(os, "fsync", fail)
    storage = pickle.loads(pickle.dumps(LocalStorage(tmp_path / "ice", flush=False)))
    storage = storage.with_settings(storage.default_settings())
    assert "flush: False" in repr(storage)
    version = _put(storage, b"1")
    storage.put("chunks/a", b"1")
    storage.put_many([("chunks/b", b"1"), ("deep/folder/c", b"1")])
    storage.backup("repo", version, b"1", "overwritten/1")
    with storage.open_replacement(Replacement("repo", b"2", version, b"1", "overwritten/2")) as ready:
        assert isinstance(ready.finish(), Stored)
    assert {info.key for info in storage.list("overwritten")} == {"overwritten/1", "overwritten/2"}


def test_a_writer_continues_without_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "TURN_SECONDS", 0.01)
    storage, other = LocalStorage(tmp_path), LocalStorage(tmp_path / "missing")
    with storage.local_queue("repo"), storage.local_queue("repo"), other.local_queue("repo"):
        _put(storage, b"1")
    assert [info.key for info in storage.list("")] == ["repo"]
    assert storage.delete_abandoned(datetime.now(UTC) + timedelta(hours=1)) == 0


@pytest.mark.parametrize("failing", ["write", "fsync", "replace"])
def test_of_many_the_first_error_is_raised_and_nothing_is_left_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    storage = LocalStorage(tmp_path)
    descriptors = len(os.listdir("/proc/self/fd"))
    left = [1]
    call = getattr(os, failing)

    def fail_at_the_second(*args: object) -> object:
        if left:
            left.pop()
            return call(*args)
        raise OSError(errno.ENOSPC, "the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(os, failing, fail_at_the_second)
        with pytest.raises(StorageError, match=r"could not write '[abc]?': no space left.*the disk is full"):
            storage.put_many([("a", b"1"), ("b", b"2"), ("c", b"3")])
    expected = {"write": set(), "replace": {"a"}, "fsync": {"a", "b", "c"}}
    assert set(os.listdir(tmp_path)) == expected[failing]
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_large_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "CALL_BYTES", 1 << 20)
    data = os.urandom((5 << 20) + 3)
    storage = LocalStorage(tmp_path)
    storage.put("chunks/a", data)
    assert storage.get("chunks/a") == data
    assert storage.get("chunks/a", 7, 3 << 20) == data[7 : 3 << 20]
    assert storage.get_versioned("chunks/a")[1] != Version()
