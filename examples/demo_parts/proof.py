"""Compare the repository as Frazil reads it with the published icechunk, and with the NetCDF files.

The comparison with the files finds errors that both libraries have in common.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import icechunk
import netCDF4
import numpy as np
import zarr

import frazil

from .sources import SOURCES

type Nodes = dict[str, zarr.Array[Any] | zarr.Group]


def nodes_of(repo: Any, branch: str) -> Nodes:
    root = zarr.open_group(repo.readonly_session(branch).store, mode="r")
    return {"": root, **dict(root.members(max_depth=None))}


def compared(repository: Path) -> tuple[int, list[str]]:
    """Return the number of compared arrays, and a list of differences."""
    icechunk.set_logs_filter("error")  # icechunk warns about local storage
    ours = frazil.Repository.open(frazil.local_filesystem_storage(str(repository)))
    theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(str(repository)))
    count, found = 0, []
    if ours.list_branches() != theirs.list_branches():
        found.append(f"branches: {ours.list_branches()} and {theirs.list_branches()}")
    for branch in sorted(ours.list_branches()):
        if history(ours, branch) != history(theirs, branch):
            found.append(f"{branch}: the history")
        left, right = nodes_of(ours, branch), nodes_of(theirs, branch)
        found += [f"{branch}: {path} exists in only one of the two" for path in left.keys() ^ right.keys()]
        both = left.keys() & right.keys()
        found += [f"{branch}: {path}" for path in sorted(both) if not equal(left[path], right[path])]
        count += sum(isinstance(left[path], zarr.Array) for path in both)
    return count, found


def history(repo: Any, branch: str) -> list[tuple[str, str]]:
    return [(commit.id, commit.message) for commit in repo.ancestry(branch=branch)]


def equal(left: zarr.Array[Any] | zarr.Group, right: zarr.Array[Any] | zarr.Group) -> bool:
    """Return whether two nodes have the same kind, the same metadata, and the same bits as values."""
    if left.metadata.to_dict() != right.metadata.to_dict():
        return False
    if isinstance(left, zarr.Array) and isinstance(right, zarr.Array):
        return same_bits(left[...], right[...])
    return True


def same_bits(left: Any, right: Any) -> bool:
    a, b = np.asarray(left), np.asarray(right)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def compared_with_files(repository: Path, tag: str) -> tuple[int, list[str]]:
    """Compare each variable that icechunk reads at the tag with the variable of its NetCDF file."""
    theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(str(repository)))
    store = theirs.readonly_session(tag=tag).store
    count, found = 0, []
    for source in SOURCES:
        with netCDF4.Dataset(source.path) as file:
            file.set_auto_maskandscale(False)
            for name, variable in file.variables.items():
                count += 1
                path = f"{source.group}/{name}"
                if not same_bits(zarr.open_array(store, path=path, mode="r")[...], variable[...]):
                    found.append(f"{tag}: {path} and {source.file}")
    return count, found
