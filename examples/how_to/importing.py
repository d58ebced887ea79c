"""Import repositories from before version 1 (icechunk 0.1.0a1 to 0.1.3).

The current icechunk cannot open these repositories. The import needs the package frazil-import:
docs/upgrading.md says how to install it.

Run it:  python examples/how_to/importing.py

The small repository old_repository.zip, in the folder of this file, has the newest of these formats.
"""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path

import numpy as np
import zarr

import frazil


def show(repo: frazil.Repository) -> None:
    history = [snapshot.message for snapshot in repo.ancestry(branch="main")]
    print("history:", history, "branches:", sorted(repo.list_branches()), "tags:", sorted(repo.list_tags()))
    array = zarr.open_array(repo.readonly_session("main").store, path="t", mode="r")
    print("values: ", array.shape, np.asarray(array[0]).tolist())


def main(folder: Path) -> None:
    zipfile.ZipFile(Path(__file__).with_name("old_repository.zip")).extractall(folder / "old")
    old = frazil.local_filesystem_storage(folder / "old")

    # Frazil recognises the old format, and does not report damage.
    try:
        frazil.Repository.open(old)
    except frazil.FormatError as error:
        print(error.kind)

    # To look into the repository without a copy, import it into memory and leave the chunks where they are.
    report = frazil.upgrade(old, frazil.in_memory_storage(), chunks="reference")
    print("found:", report.generation)
    print(f"{report.snapshots} snapshots, {report.arrays} arrays, {report.chunk_references} references")

    # Import it into another folder, with the chunks. The old files do not change. If an import was
    # interrupted, run it again. A second import of a complete repository does nothing.
    new = frazil.local_filesystem_storage(folder / "new")
    report = frazil.upgrade(old, new)
    print("copied:", report.chunks_copied, "of", report.chunk_files, "left out:", list(report.left_out))
    print("again: ", frazil.upgrade(old, new).was_there)

    # Readers must authorise these locations of virtual chunks.
    print("to authorise:", list(report.virtual_prefixes))
    show(frazil.Repository.open(new))

    # Or import it in place: Frazil uses the chunk files where they are, and writes new metadata beside the
    # old.
    frazil.upgrade(old)
    show(frazil.Repository.open(old))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(directory))
