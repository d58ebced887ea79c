"""Repositories of version 1 of the format: use them as they are, or upgrade them.

Run it:  python examples/how_to/upgrading.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import zarr

import frazil


def describe(repo: frazil.Repository, folder: Path) -> None:
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    names = sorted({path.parts[0] for path in files})
    history = [snapshot.message for snapshot in repo.ancestry(branch="main")]
    print(repo.spec_version, names, history)


def main(folder: Path) -> None:
    storage = frazil.local_filesystem_storage(str(folder))

    # Version 1 keeps a file for each branch and tag. It is read and written like version 2.
    repo = frazil.Repository.create(storage, spec_version=1)
    with repo.transaction("main", message="Written to version 1") as store:
        zarr.create_array(store, name="a", shape=(10,), chunks=(5,), dtype="i4")[:] = 7
    repo.create_tag("then", snapshot_id=repo.lookup_branch("main"))
    print("on open:", frazil.Repository.fetch_spec_version(storage))
    describe(repo, folder)

    # What version 1 cannot do says so.
    try:
        repo.rearrange_session("main")
    except frazil.FormatError as error:
        print(error.kind)

    # Upgrading writes one file from which everything else is found; arrays, snapshots and ids stay. Look
    # first: a dry run changes nothing. An upgrade that was interrupted is simply done again.
    frazil.upgrade_icechunk_repository(repo, dry_run=True)
    print("after the dry run:", frazil.Repository.fetch_spec_version(storage))
    before = repo.lookup_branch("main")
    repo = frazil.upgrade_icechunk_repository(repo, dry_run=False)
    describe(repo, folder)
    print("same snapshot:", repo.lookup_branch("main") == before)
    store = repo.readonly_session(tag="then").store
    print("at the tag:", zarr.open_array(store, path="a", mode="r")[:3])
    session = repo.rearrange_session("main")
    session.move("/a", "/b")
    session.commit("Version 2 can move")
    describe(repo, folder)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(directory) / "repo")
