"""A cache on disk: reads are those of the storage, whatever happens to its files, and within its limit."""

from __future__ import annotations

import asyncio
import errno
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import numpy as np
import pytest
import zarr
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tests.support.forks import is_refused_in_child

import frazil
from frazil.errors import IcechunkError, InvalidInputError
from frazil.storage import cached_storage, storage_from_url
from frazil.storage.checks import TRAFFIC
from frazil.storage.disk_cache import CachedStorage, cache_usage, clear_cache
from frazil.storage.local import LocalStorage
from frazil.storage.memory import MemoryStorage
from frazil.testing import LatencyStorage
from frazil.testing.storage_suite import StorageSuite

if TYPE_CHECKING:
    from collections.abc import Buffer

    from tests.support.servers import RunningServer

    from frazil.storage.base import Storage

_BLOCK = 64 << 10
_SIZES = (0, 1, 5000, _BLOCK - 1, _BLOCK, _BLOCK + 1, 3 * _BLOCK, 5 * _BLOCK + 77)


def _key(number: int, folder: str = "chunks") -> str:
    return f"{folder}/{number:020d}"


def _filled(storage: Storage) -> Storage:
    random = np.random.default_rng(0)
    for number, size in enumerate(_SIZES):
        storage.put(_key(number), random.bytes(size))
    return storage


class TestCachedMemory(StorageSuite):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> Storage:
        return CachedStorage(MemoryStorage(), str(tmp_path), 1 << 20)


class TestCachedMinistack(StorageSuite):
    @pytest.fixture
    def storage(self, ministack: RunningServer, tmp_path: Path) -> Storage:
        return cached_storage(ministack.storage(prefix="a"), tmp_path)


# any damage


_WAYS = ("get", "get_into", "get_async")


def _outcome(storage: Storage, way: str, key: str, start: int, stop: int | None) -> object:
    try:
        if way == "get_into" and stop is not None:
            out = bytearray(max(stop - start, 0))
            return bytes(out[: storage.get_into(key, start, memoryview(out))])
        data: Buffer = (
            asyncio.run(storage.get_async(key, start, stop))
            if way == "get_async"
            else storage.get(key, start, stop)
        )
        return bytes(data)
    except IcechunkError as error:
        return error.kind


class Damage(RuleBasedStateMachine):
    """Reads through a small cache whose files another program damages, truncates and deletes."""

    @initialize(blocks=st.sampled_from([1, 6, 20, 1000]))
    def begin(self, blocks: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.plain = _filled(MemoryStorage())
        self.cached = CachedStorage(self.plain, self.folder.name, blocks * _BLOCK)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()

    @rule(
        way=st.sampled_from(_WAYS),
        number=st.integers(0, len(_SIZES)),  # the last one does not exist
        block=st.integers(0, 6),
        offset=st.integers(-2, 2) | st.integers(0, _BLOCK),
        length=st.none() | st.integers(0, 3) | st.integers(0, 5 * _BLOCK),
    )
    def read(self, way: str, number: int, block: int, offset: int, length: int | None) -> None:
        start = block * _BLOCK + offset
        stop = None if length is None else start + length
        request = way, _key(number), start, stop
        assert _outcome(self.cached, *request) == _outcome(self.plain, *request)

    @rule(number=st.integers(0, len(_SIZES) - 1))
    def read_whole(self, number: int) -> None:
        request = "get", _key(number), 0, None
        assert _outcome(self.cached, *request) == _outcome(self.plain, *request)

    def _file(self, number: int) -> Path | None:
        files = sorted(Path(self.folder.name).iterdir())
        return files[number % len(files)] if files else None

    @rule(number=st.integers(0, 9), place=st.floats(0, 1), byte=st.integers(1, 255), is_head=st.booleans())
    def flip(self, number: int, place: float, byte: int, is_head: bool) -> None:
        if (path := self._file(number)) and (size := path.stat().st_size):
            position = int(place * min(80, size - 1)) if is_head else int(place * (size - 1))
            with path.open("r+b") as file:
                file.seek(position)
                old = file.read(1)[0]
                file.seek(position)
                file.write(bytes([old ^ byte]))

    @rule(number=st.integers(0, 9), place=st.floats(0, 1))
    def truncate(self, number: int, place: float) -> None:
        if path := self._file(number):
            os.truncate(path, int(place * path.stat().st_size))

    @rule(number=st.integers(0, 9))
    def delete(self, number: int) -> None:
        if path := self._file(number):
            path.unlink()

    @rule()
    def clear(self) -> None:
        clear_cache(self.folder.name)
        assert cache_usage(self.folder.name).size_bytes == 0

    @rule(number=st.integers(0, len(_SIZES) - 1), value=st.binary(max_size=3), is_deleted=st.booleans())
    def write(self, number: int, value: bytes, is_deleted: bool) -> None:
        """A repair replaces a file."""
        if is_deleted:
            self.cached.delete([_key(number)])
        else:
            self.cached.put(_key(number), value * _BLOCK)


TestDamage = Damage.TestCase


def test_no_file_is_damaged_without_damage(tmp_path: Path) -> None:
    """The second read of every range needs no request, and the cache holds what was read."""
    plain = _filled(LatencyStorage(MemoryStorage()))
    cached = CachedStorage(plain, str(tmp_path), 1 << 30)
    for number, size in enumerate(_SIZES):
        for start, stop in ((0, None), *([(0, size), (size // 2, size + 9)] if size else [])):
            expected = plain.get(_key(number), start, stop)
            assert bytes(cached.get(_key(number), start, stop)) == bytes(expected)
            TRAFFIC.take_counts()
            for way in _WAYS:
                assert _outcome(cached, way, _key(number), start, stop) == bytes(expected)
            assert TRAFFIC.take_counts().requests == 0
    assert cache_usage(str(tmp_path)).objects == len(_SIZES)


def test_a_change_of_a_file_that_was_compared_is_seen(tmp_path: Path) -> None:
    """A block is compared once while its file does not change, and again after any change."""
    plain = _filled(MemoryStorage())
    cached, last = CachedStorage(plain, str(tmp_path), 1 << 30), len(_SIZES) - 1
    expected = bytes(plain.get(_key(last)))
    cached.get(_key(last))
    path = next(tmp_path.glob("*-chunks-*"))
    whole, now = path.read_bytes(), time.time()
    place = len(whole) - 3 * _BLOCK
    for age in range(30, 5, -3):  # each file was changed some seconds ago, as far as a reader sees
        os.utime(path, (now, now - age))
        for _ in range(2):
            TRAFFIC.take_counts()
            assert bytes(cached.get(_key(last), 5)) == expected[5:]
            assert TRAFFIC.take_counts().requests == 0
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        os.utime(path, (now, now - age + 1))
        assert bytes(cached.get(_key(last), 5)) == expected[5:]
        os.truncate(path, place)
        assert bytes(cached.get(_key(last), 5)) == expected[5:]
        path.write_bytes(whole)


# processes

_READER = """
import sys, numpy as np
from frazil.storage.disk_cache import CachedStorage
from frazil.storage.local import LocalStorage
root, folder, seed, rounds = sys.argv[1:]
plain = LocalStorage(root)
cached = CachedStorage(plain, folder, 12 << 16)
random = np.random.default_rng(int(seed))
infos = list(plain.list("chunks"))
print("ready", flush=True)
for _ in range(int(rounds)):
    info = infos[random.integers(len(infos))]
    start = int(random.integers(info.size))
    stop = start + 1 + int(random.integers(5 << 16))
    assert bytes(cached.get(info.key, start, stop)) == bytes(plain.get(info.key, start, stop))
"""


def test_processes_share_a_folder_and_are_killed(tmp_path: Path) -> None:
    root, folder = tmp_path / "ice", tmp_path / "cache"
    _filled(LocalStorage(root)).delete([_key(0)])

    def start(seed: int, rounds: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", _READER, str(root), str(folder), str(seed), str(rounds)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    witness = start(0, 1500)
    for seed in range(1, 4):
        victim = start(seed, 1_000_000)
        clear_cache(str(folder))
        victim.send_signal(signal.SIGKILL)
        victim.communicate()
    witness.communicate()
    assert witness.returncode == 0
    last = start(9, 500)
    last.communicate()
    assert last.returncode == 0
    names = {path.name for path in folder.iterdir()}
    assert len(names) == cache_usage(str(folder)).objects + 1  # and ``usage``


def test_a_forked_child_gets_the_error_of_the_storage(tmp_path: Path) -> None:
    cached = CachedStorage(_filled(MemoryStorage()), str(tmp_path), 1 << 20)
    cached.get(_key(2))
    assert is_refused_in_child(lambda: cached.get(_key(2)))


# trust


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE])
@pytest.mark.parametrize(
    "call", ["open", "fstat", "pread", "preadv", "utime", "close", "pwrite", "ftruncate"]
)
@pytest.mark.parametrize("once", [True, False])
def test_a_failing_disk_costs_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int, once: bool
) -> None:
    """Each call of the cache fails once, or always. The error never reaches the reader."""
    plain, folder, original = _filled(MemoryStorage()), str(tmp_path), getattr(os, call)
    cached, fresh = (CachedStorage(plain, folder, 20 * _BLOCK) for _ in range(2))
    for number in range(len(_SIZES)):
        cached.get(_key(number))
    failing = 0

    def fail(*args: Any, **options: Any) -> Any:
        nonlocal failing
        failing -= 1
        if failing == 0 or (failing < 0 and not once):
            if call == "close":
                original(*args, **options)
            raise OSError(code, "broken")
        return original(*args, **options)

    monkeypatch.setattr(os, call, fail)
    for first in range(1, 12):
        failing = first
        for storage, start, stop in (
            (cached, 3, 2 * _BLOCK),
            (fresh, 0, None),
            (fresh, 2 * _BLOCK, 3 * _BLOCK),
        ):
            storage.is_at_hand(_key(7), start, stop or _BLOCK)
            for way in _WAYS:
                request = way, _key(7), start, stop
                assert _outcome(storage, *request) == _outcome(plain, *request)


def test_a_file_of_another_object_is_noticed(tmp_path: Path) -> None:
    plain = MemoryStorage()
    for number in (1, 2):
        plain.put(_key(number), bytes([number]) * 5000)
    cached = CachedStorage(plain, str(tmp_path), 1 << 20)
    for number in (1, 2):
        cached.get(_key(number))
    one, two = sorted(tmp_path.glob("*-chunks-*"))
    shutil.copy2(one, two)
    assert not CachedStorage(plain, str(tmp_path), 1 << 20).is_at_hand(_key(9), 0, 5000)
    assert bytes(CachedStorage(plain, str(tmp_path), 1 << 20).get(_key(2), 5, 99)) == bytes([2]) * 94


@pytest.mark.skipif(sys.platform == "win32", reason="no owners")
@pytest.mark.parametrize(
    ("mode", "user", "error", "is_used"),
    [
        (0o700, None, None, True),
        (0o755, None, None, True),  # and closed to others
        (0o777, None, None, False),
        (0o720, None, None, False),
        (0o1777, None, None, False),
        (0o700, 12345, None, False),
        (None, None, errno.EACCES, False),
        (None, None, errno.EROFS, False),
        (None, None, errno.ENOENT, False),
    ],
)
def test_a_folder_that_cannot_be_trusted_is_not_used(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    mode: int | None,
    user: int | None,
    error: int | None,
    is_used: bool,
) -> None:
    folder, plain = tmp_path / "cache", _filled(LatencyStorage(MemoryStorage()))
    if mode is not None:
        folder.mkdir()
        folder.chmod(mode)
    if user is not None:
        monkeypatch.setattr(os, "geteuid", lambda: user)
    if error is not None:
        monkeypatch.setattr(os, "makedirs", Mock(side_effect=OSError(error, "refused")))
    for _ in range(2):
        cached = pickle.loads(pickle.dumps(cached_storage(plain, folder)))
        for number in range(2, 5):
            assert bytes(cached.get(_key(number))) == bytes(plain.get(_key(number)))
    assert cache_usage(str(folder)).objects == (3 if is_used else 0)
    assert len([each for each in caplog.records if each.levelname == "WARNING"]) == (not is_used)
    assert not is_used or folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(sys.platform == "win32", reason="no owners")
def test_a_file_of_another_user_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, status = _filled(LatencyStorage(MemoryStorage())), os.fstat
    CachedStorage(plain, str(tmp_path), 1 << 20).get(_key(2))
    cached = CachedStorage(plain, str(tmp_path), 1 << 20)

    def of_another_user(descriptor: int) -> os.stat_result:
        fields = list(status(descriptor))
        fields[4] += 12345
        return os.stat_result(fields)

    for fstat, requests in ((status, 0), (of_another_user, 1), (status, 0)):
        monkeypatch.setattr(os, "fstat", fstat)
        TRAFFIC.take_counts()
        assert cached.get(_key(2))
        assert TRAFFIC.take_counts().requests == requests


# the limit


def test_the_limit_holds_and_used_files_stay(tmp_path: Path) -> None:
    plain, size = MemoryStorage(), 4 * _BLOCK
    for number in range(60):
        plain.put(_key(number), bytes([number]) * size)
    cached = CachedStorage(plain, str(tmp_path), 20 * size)
    for number in range(60):
        cached.get(_key(number))
        os.utime(next(tmp_path.glob(f"*{_key(number)[-20:]}")), (number, number))  # long ago
        cached.get(_key(0))  # the time of its last use is now
        assert cache_usage(str(tmp_path)).size_bytes <= cached.limit
    names = {path.name[-2:] for path in tmp_path.glob("*-chunks-*")}
    assert "00" in names
    assert "59" in names
    assert "01" not in names
    assert len(names) > 10


# what is cached


def test_other_keys_and_rewritten_snapshots_are_never_cached(tmp_path: Path) -> None:
    plain = MemoryStorage()
    cached = CachedStorage(plain, str(tmp_path), 1 << 20)
    header = "ICE🧊CHUNK".encode().ljust(36)
    keys = ["repo", "config.yaml", "refs/branch.main/ref.json", "chunks/c/0", "chunks/zarr.json", "chunks/a"]
    keys += [f"a/{_key(1)}", f"{_key(1)}/0", _key(1).lower() + "a", _key(7, "snapshots")]
    for key in keys:
        for value in (header + b"\1 first", header + b"\1 second"):
            plain.put(key, value)
            assert bytes(cached.get(key)) == value
    assert cache_usage(str(tmp_path)).objects == 0
    plain.put(_key(8, "snapshots"), header + b"\2")
    cached.get(_key(8, "snapshots"))
    assert cache_usage(str(tmp_path)).objects == 1


def test_storages_do_not_mix(tmp_path: Path) -> None:
    for name in ("a", "b"):
        LocalStorage(tmp_path / name).put(_key(1), name.encode())
    for _ in range(2):
        for name in ("a", "b"):
            cached = CachedStorage(LocalStorage(tmp_path / name), str(tmp_path / "cache"), 1 << 20)
            assert bytes(cached.get(_key(1))) == name.encode()


# the functions


@pytest.fixture
def repository(
    ministack: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, dict[str, Any]]:
    """A repository on S3, and the options of its URL, with a cache that the environment sets."""
    storage = ministack.storage()
    bucket = storage.bucket.name
    options = {
        "endpoint_url": f"http://127.0.0.1:{ministack.port}",
        "region": "us-east-1",
        "access_key_id": "testkey",
        "secret_access_key": "testsecret",
    }
    url = f"s3://{bucket}/ice"
    session = frazil.Repository.create(storage_from_url(url, options)).writable_session("main")
    data = np.arange(40_000, dtype="i8")
    zarr.create_array(session.store, name="a", data=data, chunks=(100,), compressors=None)
    session.commit("data")
    monkeypatch.setenv("FRAZIL_CACHE", str(tmp_path / "cache"))
    return url, options


def _read(storage: Storage) -> Any:
    return frazil.Array(frazil.Repository.open_session(storage, "main"), "a")[:]


def test_a_second_handle_asks_only_for_the_newest_version(
    repository: tuple[str, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, options = repository
    first = _read(storage_from_url(url, options))
    TRAFFIC.take_counts()
    for storage in (
        storage_from_url(url, options),
        pickle.loads(pickle.dumps(storage_from_url(url, options))),
    ):
        assert np.array_equal(_read(storage), first)
        assert TRAFFIC.take_counts().requests == 1  # of ``repo``
    array = zarr.open_array(
        frazil.Repository.open(storage_from_url(url, options)).readonly_session("main").store,
        path="a",
        mode="r",
    )
    assert np.array_equal(array[:], first)
    monkeypatch.setenv("FRAZIL_CACHE_SIZE", "many")
    with pytest.raises(InvalidInputError, match="256MB"):
        storage_from_url(url, options)
    assert not isinstance(storage_from_url(str(tmp_path)), CachedStorage)


def test_a_verification_reads_the_storage(repository: tuple[str, dict[str, Any]]) -> None:
    """The cache hides damage from readers, and neither from a verification nor from a copy."""
    pytest.importorskip("cloudpickle")  # of the extra `pipeline`
    pipeline = pytest.importorskip("frazil.pipeline")
    url, options = repository
    storage = storage_from_url(url, options)
    _read(storage)
    key = next(storage.list("chunks")).key
    pack = bytearray(storage.origin().get(key))
    pack[1000] ^= 1
    storage.origin().put(key, pack)
    assert _read(storage)[125] == 125
    repo = frazil.Repository.open(storage)
    assert not repo.upkeep.verify("checksum").ok
    with pytest.raises(IcechunkError, match="undamaged"):
        pipeline.copy_repository(repo, MemoryStorage(), engine="inline")


def test_bad_folders(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    remote = _filled(LatencyStorage(MemoryStorage()))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidInputError, match="folder"):
        cached_storage(remote, tmp_path / "file")
    with pytest.raises(InvalidInputError, match="256MB"):
        cached_storage(remote, tmp_path, "0")
    local = LocalStorage(tmp_path)
    assert cached_storage(local, tmp_path / "cache") is local
    cached = CachedStorage(remote, str(tmp_path / "file"), 1 << 20)
    for _ in range(3):
        assert bytes(cached.get(_key(2))) == bytes(remote.get(_key(2)))
    assert len([each for each in caplog.records if each.levelname == "WARNING"]) == 1
