"""What later versions of the format may put into ``repo`` stays there when the file is written again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import frazil
from frazil.format.repo_info import decode_repo_info, encode_repo_info


@pytest.mark.parametrize("extra", [b"", b"\0\x01later", bytes(1000)])
def test_extra_bytes_are_preserved(extra: bytes, tmp_path: Path) -> None:
    storage = frazil.local_filesystem_storage(str(tmp_path))
    repo = frazil.Repository.create(storage)
    info = decode_repo_info(storage.get("repo"), "repo")
    assert info.extra is None
    storage.put("repo", encode_repo_info(replace(info, extra=extra)))
    repo = frazil.Repository.open(storage)
    repo.create_tag("v1", repo.lookup_branch("main"))
    repo.writable_session("main").commit("m", allow_empty=True)
    assert decode_repo_info(storage.get("repo"), "repo").extra == extra
    assert repo.list_tags() == {"v1"}


@pytest.mark.interop
def test_the_reference_reads_a_repo_with_extra_bytes(tmp_path: Path) -> None:
    icechunk = pytest.importorskip("icechunk")
    storage = frazil.local_filesystem_storage(str(tmp_path))
    repo = frazil.Repository.create(storage)
    info = decode_repo_info(storage.get("repo"), "repo")
    storage.put("repo", encode_repo_info(replace(info, extra=b"later")))
    theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path)))
    assert theirs.lookup_branch("main") == repo.lookup_branch("main")
