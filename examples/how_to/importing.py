"""Repositories from before version 1 (icechunk 0.1.0a1 to 0.1.3, which today's icechunk opens no more).

Run it:  python examples/how_to/importing.py

The small repository beside this file, old_repository.zip, is in the last of those formats.
"""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path

import zarr

import frazil


def show(repo: frazil.Repository) -> None:
    history = [snapshot.message for snapshot in repo.ancestry(branch="main")]
    print("history:", history, "branches:", sorted(repo.list_branches()), "tags:", sorted(repo.list_tags()))
    array = zarr.open_array(repo.readonly_session("main").store, path="t", mode="r")
    print("values: ", array.shape, array[0].tolist())


def main(folder: Path) -> None:
    zipfile.ZipFile(Path(__file__).with_name("old_repository.zip")).extractall(folder / "old")
    old = frazil.local_filesystem_storage(folder / "old")

    # It is recognised, not mistaken for damage.
    try:
        frazil.Repository.open(old)
    except frazil.FormatError as error:
        print(error.kind)

    # Look before anything is copied: into memory, with the chunks where they are.
    report = frazil.upgrade(old, frazil.in_memory_storage(), chunks="reference")
    print("found:", report.generation)
    print(f"{report.snapshots} snapshots, {report.arrays} arrays, {report.chunk_references} references")

    # To somewhere else, with the chunks. The old files stay as they are. An import that was interrupted is
    # simply done again; one that is done does nothing.
    new = frazil.local_filesystem_storage(folder / "new")
    report = frazil.upgrade(old, new)
    print("copied:", report.chunks_copied, "of", report.chunk_files, "left out:", list(report.left_out))
    print("again: ", frazil.upgrade(old, new).was_there)

    # What the virtual chunks need when they are read: leave for the places where they are.
    print("to authorise:", list(report.virtual_prefixes))
    show(frazil.Repository.open(new))

    # Or in place: chunk files are used where they are, only metadata is written anew, beside the old.
    frazil.upgrade(old)
    show(frazil.Repository.open(old))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(directory))
