"""Use repositories of version 1 of the format, or upgrade them to version 2.

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

    # Version 1 stores a file for each branch and tag. Frazil reads and writes it like version 2.
    repo = frazil.Repository.create(storage, spec_version=1)
    with repo.transaction("main", message="Written to version 1") as store:
        zarr.create_array(store, name="a", shape=(10,), chunks=(5,), dtype="i4")[:] = 7
    repo.create_tag("then", snapshot_id=repo.lookup_branch("main"))
    print("on open:", frazil.Repository.fetch_spec_version(storage))
    describe(repo, folder)

    # Operations that need version 2 raise an error.
    try:
        repo.rearrange_session("main")
    except frazil.FormatError as error:
        print(error.kind)

    # An upgrade writes one file that leads to all others. Arrays, snapshots and ids do not change. A dry run
    # changes nothing. If an upgrade was interrupted, run it again.
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
