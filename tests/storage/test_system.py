"""Local storages with the rules of other systems: those of Windows and macOS, by stand-ins of their calls."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING

import pytest
from tests.support import windows
from tests.support.patience import patience

from frazil import host
from frazil.errors import ErrorKind, InvalidInputError, StorageError
from frazil.storage import system
from frazil.storage.base import IfAbsent, IfVersion, Storage, Stored
from frazil.storage.disk_cache import CachedStorage, cache_usage
from frazil.storage.local import LocalStorage
from frazil.storage.memory import MemoryStorage
from frazil.storage.system import WindowsSystem
from frazil.storage.urls import parse_url
from frazil.testing.storage_suite import StorageSuite

if TYPE_CHECKING:
    from collections.abc import Iterator


#: The stand-ins need locks of descriptors and `/proc`. On Windows, the same tests need no stand-in.
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="the stand-ins of other systems are for Linux")


@pytest.fixture
def on_windows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if sys.platform == "win32":
        yield
        return
    if sys.platform != "linux":
        pytest.skip("the stand-ins of Windows are for Linux")
    monkeypatch.setattr(system, "files", WindowsSystem(windows.locking))
    with windows.stand_in():
        yield


#: Key -> whether a file of Windows can have this name.
KEYS = {
    **dict.fromkeys(
        ("a b+c%20d", "é/日本", "x=1/y=2", "~a", "refs/branch.CON/ref.json", "console", "com0x"), True
    ),
    **dict.fromkeys(
        ("a&b<c>", "q?r", "a.b..c/...", "a./b", "b ", "x/y:stream", "C:", "a\\..\\b", "\x01"), False
    ),
    **dict.fromkeys(("CON", "a/nul.txt/b", "Lpt1", "com¹.x", "aux ", "conout$/a"), False),
}


class WindowsSuite(StorageSuite):
    """The contract, where names of files have other rules."""

    @pytest.mark.parametrize("key", KEYS)
    def test_keys_with_odd_characters(self, storage: Storage, key: str) -> None:
        if KEYS[key]:
            super().test_keys_with_odd_characters(storage, key)
            return
        calls: list[Callable[[str], object]] = [storage.get, storage.head, storage.list]
        calls.append(lambda key: storage.put(key, b"x"))
        for call in calls:
            with pytest.raises(InvalidInputError) as caught:
                call(key)
            assert caught.value.kind == ErrorKind.BAD_KEY_PREFIX
        with pytest.raises(InvalidInputError):
            storage.delete([key])


@pytest.mark.usefixtures("on_windows")
class TestWindows(WindowsSuite):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> Storage:
        return LocalStorage(tmp_path / "made" / "lazily")


@on_linux
class TestWindowsWithFat(WindowsSuite):
    many = 20

    @pytest.fixture
    def storage(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
        monkeypatch.setattr(system, "files", WindowsSystem(windows.locking))
        with windows.stand_in(has_links=False):
            yield LocalStorage(tmp_path)


@pytest.mark.usefixtures("on_windows")
class TestCacheOnWindows(StorageSuite):
    many = 20

    @pytest.fixture
    def storage(self, tmp_path: Path) -> Storage:
        return CachedStorage(MemoryStorage(), str(tmp_path), 1 << 20)


@pytest.mark.skipif(sys.platform == "win32", reason="needs fcntl")
class TestMacOS(StorageSuite):
    many = 20

    @pytest.fixture
    def storage(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Storage:
        monkeypatch.setattr(system, "files", system.MacOS())
        return LocalStorage(tmp_path)


# Windows


@pytest.mark.usefixtures("on_windows")
def test_a_write_waits_for_a_reader_of_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalStorage(tmp_path)
    stored = storage.put("repo", b"1", IfAbsent())
    assert isinstance(stored, Stored)
    reader = os.open(tmp_path / "repo", os.O_RDONLY)
    monkeypatch.setattr(system, "PATIENCE_SECONDS", 0.05)
    for write in (
        lambda: storage.put("repo", b"2", IfVersion(stored.version)),
        lambda: storage.delete(["repo"]),
    ):
        with pytest.raises(StorageError) as caught:
            write()
        assert caught.value.kind == ErrorKind.STORAGE_PERMISSION
    assert sorted(os.listdir(tmp_path)) == ["repo", "repo#0"]
    monkeypatch.setattr(system, "PATIENCE_SECONDS", 60)
    readers = [0, 0, reader]

    def close_reader(seconds: float) -> None:
        if readers:
            os.close(readers.pop(0) or os.dup(0))

    monkeypatch.setattr(host, "pause", close_reader)
    assert isinstance(storage.put("repo", b"2", IfVersion(stored.version)), Stored)
    assert storage.get("repo") == b"2"
    readers += [0, os.open(tmp_path / "repo", os.O_RDONLY)]
    storage.delete(["repo"])
    assert not readers
    assert storage.head("repo") is None


@pytest.mark.usefixtures("on_windows")
def test_locks_exclude_other_descriptors_and_processes(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    first, second = (system.files.open(path, os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert system.files.lock(first, by_process=True)
    assert not system.files.lock(second, by_process=True)
    assert not system.files.lock(second)
    os.lseek(second, 0, os.SEEK_SET)
    os.write(second, b"the bytes of the file are not locked")
    system.files.unlock(first)
    assert system.files.lock(second)
    os.close(second)
    assert system.files.lock(first, by_process=True)
    os.close(first)


@pytest.mark.usefixtures("on_windows")
def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    storage = LocalStorage(tmp_path / "ice")
    storage.put("inside", b"1")
    (tmp_path / "ice" / "outside").symlink_to(tmp_path / "secret")
    (tmp_path / "ice" / "link").symlink_to("inside")
    assert storage.get("link") == b"1"
    with pytest.raises(StorageError) as caught:
        storage.get("outside")
    assert caught.value.kind == ErrorKind.LINK_OUTSIDE


@pytest.mark.usefixtures("on_windows")
def test_a_damaged_file_of_the_cache_is_deleted(tmp_path: Path) -> None:
    inner, key = MemoryStorage(), f"chunks/{1:020d}"
    inner.put(key, b"0123456789")
    storage = CachedStorage(inner, str(tmp_path), 1 << 20)
    assert bytes(storage.get(key)) == b"0123456789"
    [file] = tmp_path.glob("*-chunks-*")
    data = file.read_bytes()
    file.write_bytes(data[:-1] + b"x")
    assert bytes(storage.get(key)) == b"0123456789"
    assert file.read_bytes() == data
    assert cache_usage(str(tmp_path)).objects == 1


@pytest.mark.skipif(sys.platform == "darwin", reason="the stand-ins of Windows are for Linux")
def test_processes_of_windows_commit(tmp_path: Path) -> None:
    command = [sys.executable, windows.__file__, str(tmp_path)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **options) for _ in range(2)]  # type: ignore[call-overload]
    for process in processes:
        output, errors = process.communicate(timeout=patience(300))
        assert process.returncode == 0, errors
        assert output.startswith("WindowsSystem False "), output  # without the classes of POSIX
    assert len((tmp_path / "shared" / "lines").read_bytes()) == len(processes) * windows.LINES


PATHS = {
    "C:\\data\\my repo": "file:///C:/data/my%20repo",
    "C:/data": "file:///C:/data",
    "d:\\": "file:///d:/",
    "\\\\server\\share\\x#1": "file://server/share/x%231",
    "\\\\?\\C:\\data": "file:///C:/data",
    "\\\\?\\UNC\\server\\share\\x": "file://server/share/x",
    "C:\\é\\日本": "file:///C:/%C3%A9/%E6%97%A5%E6%9C%AC",
}


@pytest.mark.parametrize("path", PATHS)
def test_urls_of_windows(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "files", WindowsSystem(windows.locking))
    assert parse_url(path).key == path
    assert system.files.file_url(path) == PATHS[path]
    short = path.replace("\\\\?\\UNC\\", "\\\\").removeprefix("\\\\?\\")
    parsed = parse_url(PATHS[path])
    assert parsed.is_local
    assert PureWindowsPath(parsed.key) == PureWindowsPath(short)
    if path == short:
        assert PureWindowsPath(path).as_uri() == PATHS[path]
    with pytest.raises(InvalidInputError):
        parse_url("file://C:")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows reads files of other machines")
def test_urls_of_other_machines_are_no_files_of_posix() -> None:
    with pytest.raises(InvalidInputError):
        parse_url("file://server/share/x")
    assert parse_url("file://localhost/C:/x").key == "/C:/x"


# other file systems

MOUNTS = {
    "tmpfs": "mount -t tmpfs tmpfs $0",
    "overlay": "mount -t tmpfs tmpfs $0 && mkdir $0/lower $0/upper $0/work && mount -t overlay overlay "
    "-o lowerdir=$0/lower,upperdir=$0/upper,workdir=$0/work $0",
}


@on_linux
@pytest.mark.deep
@pytest.mark.parametrize("kind", MOUNTS)
def test_other_file_systems_keep_the_contract(tmp_path: Path, kind: str) -> None:
    def mounted(*command: str) -> subprocess.CompletedProcess[str]:
        script = f'{MOUNTS[kind]} && "$@"'
        namespace = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, str(tmp_path)]
        return subprocess.run([*namespace, *command], capture_output=True, text=True)

    if shutil.which("unshare") is None:
        pytest.skip("unshare is not installed")
    if (mount := mounted("true")).returncode:
        pytest.skip(f"the kernel refuses a mount of {kind}: {mount.stderr}")
    assert mounted("stat", "-f", "-c", "%T", str(tmp_path)).stdout.startswith(kind)
    suite = f"{Path(__file__).with_name('test_local.py')}::TestLocalStorage"
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--import-mode=importlib")
    run = mounted(sys.executable, "-m", "pytest", *options, f"--basetemp={tmp_path}/t", suite)
    assert run.returncode == 0, run.stdout[-3000:]


# macOS


@on_linux
def test_macos_empties_the_cache_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int]] = []

    def control(descriptor: int, command: int) -> int:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        calls.append((os.path.relpath(path, tmp_path).partition("#")[0], command))
        if path.startswith(str(tmp_path / "network")):
            raise OSError(errno.ENOTSUP, "not supported")
        return 0

    flushed: list[int] = []
    monkeypatch.setattr(system, "files", system.MacOS())
    monkeypatch.setattr("fcntl.fcntl", control)
    monkeypatch.setattr(os, "fsync", flushed.append)
    storage = LocalStorage(tmp_path)
    storage.put("repo", b"1", IfAbsent())
    assert [call for call in calls if call[0] in ("repo", ".")] == [("repo", 51), (".", 51)]
    assert not flushed
    LocalStorage(tmp_path / "network").put("repo", b"1", IfAbsent())
    assert flushed
