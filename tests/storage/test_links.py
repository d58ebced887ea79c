"""Files that are reached through symbolic links."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.repository.hostile import DATA

import frazil
from frazil.credentials import LocalFileSystemAccess
from frazil.errors import StorageError
from frazil.storage.foreign_objects import open_foreign
from frazil.storage.object_store_config import local_filesystem_store


@pytest.fixture(params=["with /proc", "without"])
def trusted(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, next to a secret."""
    if request.param == "without":
        readlink = os.readlink

        def no_proc(path: str) -> str:
            if os.fspath(path).startswith("/proc"):
                raise FileNotFoundError(path)
            return readlink(path)

        monkeypatch.setattr(os, "readlink", no_proc)
    (tmp_path / "secret").write_bytes(DATA)
    (tmp_path / "trusted-other").mkdir()
    (tmp_path / "trusted-other" / "secret").write_bytes(DATA)
    folder = tmp_path / "trusted"
    folder.mkdir()
    return folder


def _refused(read: Callable[[], Any]) -> None:
    with pytest.raises(StorageError) as error:
        read()
    assert error.value.kind == "link-outside"


def test_virtual_chunks(trusted: Path) -> None:
    base = f"file://{trusted}"
    foreign = open_foreign(local_filesystem_store(""), LocalFileSystemAccess, f"{base}/")
    (trusted / "sub").mkdir()
    (trusted / "sub" / "data").write_bytes(DATA)
    (trusted / "inside").symlink_to("sub/data")
    (trusted / "folder").symlink_to(trusted / "sub")
    for name in ("sub/data", "inside", "folder/data"):
        assert foreign.get(f"{base}/{name}", 0, 8) == DATA
        assert foreign.size(f"{base}/{name}") == 8
    (trusted / "file").symlink_to("../secret")
    (trusted / "up").symlink_to("..")
    (trusted / "beside").symlink_to(trusted.parent / "trusted-other")
    (trusted / "chain").symlink_to("file")
    for name in ("file", "up/secret", "beside/secret", "chain", "folder/../file"):
        _refused(partial(foreign.get, f"{base}/{name}", 0, 8))
        _refused(partial(foreign.size, f"{base}/{name}"))


def test_named_pipes_are_not_waited_for(trusted: Path) -> None:
    os.mkfifo(trusted / "pipe")
    base = f"file://{trusted}"
    foreign = open_foreign(local_filesystem_store(""), LocalFileSystemAccess, f"{base}/")
    with pytest.raises(StorageError) as error:
        foreign.get(f"{base}/pipe", 0, 8)
    assert error.value.kind == "virtual-chunk-fetch"
    os.mkfifo(trusted / "repo")
    with pytest.raises(frazil.IcechunkError):
        frazil.Repository.open(frazil.local_filesystem_storage(trusted))


def test_the_prefix_itself_may_be_a_link(trusted: Path) -> None:
    (trusted / "data").write_bytes(DATA)
    (trusted / "out").symlink_to("../secret")
    link = trusted.parent / "link"
    link.symlink_to(trusted)
    for path, url in (("", f"file://{link}"), (str(link), "file:///far/away")):
        foreign = open_foreign(local_filesystem_store(path), LocalFileSystemAccess, f"{url}/")
        assert foreign.get(f"{url}/data", 0, 8) == DATA
        _refused(partial(foreign.get, f"{url}/out", 0, 8))


def test_objects_of_a_repository(trusted: Path) -> None:
    storage = frazil.local_filesystem_storage(trusted)
    storage.put("chunks/a", DATA)
    (trusted / "chunks" / "b").symlink_to("a")
    assert bytes(storage.get("chunks/b")) == DATA
    (trusted / "chunks" / "c").symlink_to("../../secret")
    for get in (
        lambda: storage.get("chunks/c"),
        lambda: storage.get("chunks/c", 0, 4),
        lambda: storage.get_versioned("chunks/c"),
    ):
        _refused(get)
    storage.put("chunks/c", b"new")  # the link is replaced, not what it leads to
    assert bytes(storage.get("chunks/c")) == b"new"
    assert (trusted.parent / "secret").read_bytes() == DATA


def test_folders_of_a_repository_may_be_on_other_disks(trusted: Path) -> None:
    disk = trusted.parent / "disk"
    disk.mkdir()
    (trusted / "chunks").symlink_to(disk)
    root = trusted.parent / "root"
    root.symlink_to(trusted)
    storage = frazil.local_filesystem_storage(root)
    storage.put("chunks/a", DATA)
    assert bytes(storage.get("chunks/a", 0, 8)) == DATA
    assert (disk / "a").read_bytes() == DATA
    assert [each.key for each in storage.list("chunks")] == ["chunks/a"]


@pytest.mark.parametrize(
    "text", ['"secretvalue"', '{"type": "secretvalue"}', '["secretvalue"]', '"secret, expected \\"value"']
)
def test_errors_quote_no_file_of_credentials(tmp_path: Path, text: str) -> None:
    file = tmp_path / "credentials"
    file.write_text(text)
    for given in (
        {"application_credentials": str(file)},
        {"service_account_file": str(file)},
        {"service_account_key": text},
    ):
        storage = frazil.gcs_storage(bucket="b", prefix="p", **given)  # type: ignore[arg-type]
        with pytest.raises(StorageError) as error:
            storage.get("x")
        assert "secret" not in str(error.value)
        assert error.value.kind == "storage-config"


def test_a_lock_is_not_taken_elsewhere(trusted: Path) -> None:
    storage = frazil.local_filesystem_storage(trusted)
    frazil.Repository.create(storage)
    lock = trusted / "repo#0"
    lock.unlink(missing_ok=True)
    lock.symlink_to("../made")
    with pytest.raises(StorageError):
        frazil.Repository.open(storage).create_branch(
            "b", frazil.Repository.open(storage).lookup_branch("main")
        )
    assert not os.path.lexists(trusted.parent / "made")
