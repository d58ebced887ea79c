"""Strategies for Hypothesis: configurations, chunks, and cut-off times."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Any

import zarr
from hypothesis import strategies as st

from frazil.config import (
    ManifestConfig,
    ManifestSplitCondition,
    ManifestSplitDimCondition,
    ManifestSplittingConfig,
)
from frazil.repository.settings import config as own_config

if TYPE_CHECKING:
    from frazil.handle.repository import Repository
    from frazil.storage.base import Storage

__all__ = [
    "chunk_coordinates",
    "chunk_paths",
    "chunk_slicers",
    "draw_older_than",
    "repository_configs",
    "splitting_configs",
]


@st.composite
def splitting_configs(draw: st.DrawFn, *, arrays: Iterable[zarr.Array[Any]]) -> ManifestSplittingConfig:
    """Return manifest splitting configurations with a rule for each array.

    A rule selects its array by path or name. It selects dimensions by axis, by name, or all of them.
    """
    rules = []
    for array in arrays:
        by_path = draw(st.booleans())
        condition = ManifestSplitCondition.path_matches if by_path else ManifestSplitCondition.name_matches
        ways: list[Any] = [ManifestSplitDimCondition.Any()]
        ways += map(ManifestSplitDimCondition.Axis, range(array.ndim))
        names = getattr(array.metadata, "dimension_names", None) or ()
        ways += [ManifestSplitDimCondition.DimensionName(name) for name in names if name]
        chosen = draw(st.lists(st.sampled_from(ways), min_size=1, max_size=3, unique=True))
        sizes = [(way, draw(st.integers(1, 6))) for way in chosen]
        rules.append((condition(array.path if by_path else array.basename or ""), sizes))
    return ManifestSplittingConfig(rules)


@st.composite
def repository_configs(
    draw: st.DrawFn,
    num_updates_per_repo_info_file: st.SearchStrategy[int] = st.integers(min_value=1, max_value=5),  # noqa: B008
    inline_chunk_threshold_bytes: st.SearchStrategy[int] | None = None,
    splitting: st.SearchStrategy[ManifestSplittingConfig] | None = None,
    ic_module: ModuleType | None = None,
) -> Any:
    """Return configurations of a repository, with classes of the package ``ic_module`` if it is passed."""
    module: Any = ic_module or own_config
    values: dict[str, Any] = {"num_updates_per_repo_info_file": draw(num_updates_per_repo_info_file)}
    if inline_chunk_threshold_bytes is not None:
        values["inline_chunk_threshold_bytes"] = draw(inline_chunk_threshold_bytes)
    if splitting is not None:
        kind = ManifestConfig if ic_module is None else module.ManifestConfig
        values["manifest"] = kind(splitting=draw(splitting))
    return module.RepositoryConfig(**values)


@st.composite
def chunk_coordinates(draw: st.DrawFn, numblocks: tuple[int, ...]) -> tuple[int, ...]:
    """Return coordinates of one chunk of a grid."""
    return draw(st.tuples(*(st.integers(0, max(count - 1, 0)) for count in numblocks)))


@st.composite
def chunk_slicers(
    draw: st.DrawFn, numblocks: tuple[int, ...], chunk_shape: tuple[int, ...]
) -> tuple[slice, ...]:
    """Return slices that select exactly one chunk of a regular grid."""
    coords = draw(chunk_coordinates(numblocks))
    return tuple(slice(c * size, (c + 1) * size) for c, size in zip(coords, chunk_shape, strict=True))


@st.composite
def chunk_paths(draw: st.DrawFn, numblocks: tuple[int, ...]) -> str:
    """Return the key of one chunk, relative to ``c`` of its array."""
    return "/".join(map(str, draw(chunk_coordinates(numblocks))))


def draw_older_than(data: st.DataObject, storage: Storage, repo: Repository) -> datetime:
    """Return a cut-off for expiration and garbage collection.

    It is directly after the files of a snapshot, or before all of them. Files have the time of the storage's
    clock, and snapshots have the time of the writer's clock. The later of the two times counts.
    """
    times = {
        each.key.rpartition("/")[2]: each.created_at
        for prefix in ("snapshots", "transactions")
        for each in storage.list_objects_metadata(prefix=prefix)
    }
    for branch in sorted(repo.list_branches()):
        for snapshot in repo.ancestry(branch=branch):
            times[snapshot.id] = max(times.get(snapshot.id, snapshot.written_at), snapshot.written_at)
    moments = sorted(times.values())
    before = moments[0] - timedelta(seconds=1)
    after = [moment + timedelta(microseconds=1) for moment in moments]
    return data.draw(st.sampled_from([before, *after]), label="older_than")
