"""Result values: equality, pickling, text, and chunk indices as columns."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from frazil.maintenance.plan import ChunkStorageStats, GCSummary
from frazil.repository.catalog.presentation import Update, UpdateType
from frazil.repository.catalog.version_info import (
    ChunkType,
    Diff,
    FeatureFlag,
    ManifestFileInfo,
    RepoAvailability,
    RepoStatus,
    SessionMode,
    SnapshotInfo,
    SpecVersion,
)

WHEN = datetime(2026, 11, 21, 7, 24, 10, 334424, tzinfo=UTC)
STATUS = RepoStatus(RepoAvailability.read_only, WHEN, "maintenance")

KINDS: list[Any] = [
    UpdateType.RepoInitialized(),
    UpdateType.RepoMigrated(1, 2),
    UpdateType.RepoStatusChanged(STATUS),
    UpdateType.ConfigChanged(),
    UpdateType.MetadataChanged(),
    UpdateType.FeatureFlagChanged(3, None),
    UpdateType.TagCreated("t"),
    UpdateType.TagDeleted("t", "A" * 20),
    UpdateType.BranchCreated("b"),
    UpdateType.BranchDeleted("b", "A" * 20),
    UpdateType.BranchReset("b", "A" * 20),
    UpdateType.NewCommit("main", "A" * 20),
    UpdateType.CommitAmended("main", "A" * 20, "B" * 20),
    UpdateType.NewDetachedSnapshot("A" * 20),
    UpdateType.GCRan(),
    UpdateType.ExpirationRan(),
    UpdateType.LogStart(),
]


def diff(**given: Any) -> Diff:
    return Diff(chunk_coordinates={"/x": np.array([[0, 1], [2, 3]], "u4")}, **given)


VALUES: list[Any] = [
    *KINDS,
    Update(KINDS[0], WHEN, "repo.1.X"),
    STATUS,
    SnapshotInfo("A" * 20, None, WHEN, "first", {"author": "me"}),
    ManifestFileInfo("A" * 20, 185, 4),
    FeatureFlag(3, "move_node", True, False),
    GCSummary(bytes_deleted=3, delete_errors=["x"]),
    ChunkStorageStats(1, 2, 3),
    diff(new_arrays={"/x"}, moved_nodes=[("/a", "/b")]),
    SpecVersion.v2,
    ChunkType.inline,
    SessionMode.rearrange,
    RepoAvailability.online,
]


@pytest.mark.parametrize("value", VALUES, ids=lambda v: type(v).__qualname__)
def test_equal_and_picklable(value: Any) -> None:
    copy = pickle.loads(pickle.dumps(value))
    assert copy == value
    assert value != 1
    assert all(value != other for other in VALUES if other is not value)


@pytest.mark.parametrize(
    "value", [v for v in VALUES if hasattr(v, "_repr_html_")], ids=lambda v: type(v).__name__
)
def test_results_are_frozen_and_print_themselves(value: Any) -> None:
    assert repr(value) == str(value)
    assert "<div" in value._repr_html_()
    with pytest.raises(AttributeError):
        setattr(value, next(iter(value.__dataclass_fields__)), None)
    with pytest.raises(TypeError):
        value < value  # noqa: B015


def test_every_kind_of_update_is_tested() -> None:
    assert set(UpdateType.variants()) == {type(kind) for kind in KINDS}
    assert all(isinstance(kind, UpdateType) for kind in KINDS)


def test_status_is_set_now_by_default() -> None:
    before = datetime.now(UTC)
    assert before <= RepoStatus(RepoAvailability.online).set_at <= datetime.now(UTC)
    with pytest.raises(TypeError, match="time zone"):
        RepoStatus(RepoAvailability.online, datetime(2026, 1, 1))


def test_diff() -> None:
    assert str(Diff()) == ""
    changed = diff(updated_groups={"/"}, deleted_arrays={"/z", "/y"}, moved_nodes=[("/a", "/b")])
    assert not changed.is_empty()
    assert changed != diff()
    assert diff() != Diff(chunk_coordinates={"/x": np.array([[0, 1], [2, 4]], "u4")})
    assert diff() != Diff(chunk_coordinates={"/y": np.array([[0, 1], [2, 3]], "u4")})
