"""The published icechunk reads what the pipelines wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.support.servers import RunningServer

import frazil
from frazil.format.chunk_table import ChunkKind


def reference() -> Any:
    """The published icechunk. The test skips in an environment with the core packages alone."""
    return pytest.importorskip("icechunk")


def reference_storage(place: Path | tuple[RunningServer, str]) -> Any:
    """A storage of the reference: of a directory, or of a bucket on one of the servers of the tests."""
    icechunk = reference()
    if isinstance(place, Path):
        return icechunk.local_filesystem_storage(str(place))
    server, bucket = place
    return icechunk.s3_storage(
        bucket=bucket,
        prefix="repo",
        region="us-east-1",
        endpoint_url=f"http://127.0.0.1:{server.port}",
        allow_http=True,
        force_path_style=True,
        access_key_id="testkey",
        secret_access_key="testsecret",
    )


def same_by_reference(place: Path | tuple[RunningServer, str], repo: frazil.Repository | None = None) -> None:
    """Every branch has the same history and the same arrays for both implementations."""
    theirs = reference().Repository.open(reference_storage(place))
    if repo is None:
        assert isinstance(place, Path)
        repo = frazil.Repository.open(frazil.local_filesystem_storage(str(place)))
    assert set(theirs.list_branches()) == set(repo.list_branches())
    _compare_all(repo, theirs, virtual=True)


def readable_by_reference(place: Path) -> None:
    """Whatever a test has left in a directory is read by the published icechunk, with the same values.

    Chunks in files that only the test had access to are left out.
    """
    theirs = reference().Repository.open(reference_storage(place))
    repo = frazil.Repository.open(frazil.local_filesystem_storage(str(place)))
    with zarr.config.set({"array.rectilinear_chunks": True}):
        _compare_all(repo, theirs)


def _compare_all(repo: frazil.Repository, theirs: Any, *, virtual: bool = False) -> None:
    tips = {*map(repo.lookup_branch, repo.list_branches()), *map(repo.lookup_tag, repo.list_tags())}
    for tip in sorted(tips):
        infos = [
            [(info.id, info.message, info.metadata) for info in each.ancestry(snapshot_id=tip)]
            for each in (repo, theirs)
        ]
        assert infos[0] == infos[1]
        session, their_session = (each.readonly_session(snapshot_id=tip) for each in (repo, theirs))
        nodes = session.workspace.snapshot.nodes
        for path in np.array(nodes.paths_list(), object)[nodes.is_array].tolist():
            array, their_array = (
                zarr.open_array(each.store, path=path.strip("/"), mode="r")
                for each in (session, their_session)
            )
            assert array.metadata == their_array.metadata
            if virtual or not (session.chunk_table(path).kind == ChunkKind.VIRTUAL).any():
                np.testing.assert_array_equal(array[...], their_array[...], path)
