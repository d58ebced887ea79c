"""Result values: equality, pickling, text; histories in consoles and notebooks."""

from __future__ import annotations

import importlib
import pickle
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import zarr

import frazil
from frazil.display import Record
from frazil.handle.version_history import ROWS, HistoryTable
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
from frazil.storage.local import LocalStorage

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


#: Rooms whose records are public.
ROOMS = ("frazil.repository", "frazil.handle", "frazil.history")


def history(commits: int = 3) -> frazil.Repository:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    for number in range(commits):
        repo.writable_session("main").commit(f"<b> {number}\nmore", allow_empty=True)
    return repo


def test_a_history_is_a_table_and_still_an_iterator() -> None:
    repo = history()
    ancestry = repo.ancestry(branch="main")
    first = next(ancestry)
    lines = repr(ancestry).splitlines()
    assert lines[0] == "<frazil: history of branch main, newest first>"
    assert re.split(r"  +", lines[1]) == ["id", "written at (UTC)", "message"]
    assert lines[2] == f"{first.id}  {first.written_at:%Y-%m-%d %H:%M:%S}  <b> 2"
    assert len(lines) == 2 + 4
    assert [each.message[:5] for each in ancestry] == ["<b> 1", "<b> 0", "Repos"]
    repo.create_tag("v1", first.id)
    assert "history of tag v1" in repr(repo.ancestry(tag="v1"))
    assert f"history of snapshot {first.id}" in repr(repo.ancestry(snapshot_id=first.id))


def test_the_log_of_operations_is_a_table() -> None:
    repo = history(1)
    repo.create_tag("v1", repo.lookup_branch("main"))
    log = repo.ops_log()
    lines = repr(log).splitlines()
    assert [line.split("  ", 1)[1].partition("(")[0].strip() for line in lines[2:]] == [
        "TagCreated", "NewCommit", "RepoInitialized",
    ]  # fmt: skip
    assert len(list(log)) == 3


def test_a_long_history_is_not_read() -> None:
    taken = []

    def rows() -> Iterator[tuple[str, ...]]:
        for number in range(100_000):
            taken.append(number)
            yield "A" * 20, f"commit {number}"

    table = HistoryTable("history", ("id", "message"), rows)
    assert taken == []
    lines = str(table).splitlines()
    assert lines[-1] == "..."
    assert len(lines) == 2 + ROWS + 1
    assert taken == [*range(ROWS + 1)]


def test_notebooks_show_histories_as_tables() -> None:
    repo = history(ROWS + 1)
    ancestry = repo.ancestry(branch="main")
    html = ancestry._repr_html_() or ""
    assert html.count("<tr>") == ROWS + 1
    assert html.count("<td>&lt;b&gt; ") == ROWS
    assert "<b>" not in html
    assert html.endswith("...</div>\n")
    assert "NewCommit" in (repo.ops_log()._repr_html_() or "")
    assert len(list(ancestry)) == ROWS + 2  # it was not advanced


def test_the_picture_names_branches_tags_and_times_in_the_colours_of_the_page() -> None:
    repo = history(1)
    tip = repo.lookup_branch("main")
    repo.create_branch("fix", tip)
    repo.create_tag("v1", tip)
    wide = "温" * 30 + "W" * 30
    repo.writable_session("fix").commit(wide, allow_empty=True)
    svg = repo.ancestry_graph()._repr_svg_()
    root = ElementTree.fromstring(svg)  # our own
    assert root.attrib["fill"] == "currentColor"
    assert "black" not in svg + repo.ancestry_graph(plain=True)._repr_svg_()
    texts = [
        ["".join(span.itertext()) for span in text] for text in root.iter("{http://www.w3.org/2000/svg}text")
    ]
    when = f"{repo.lookup_snapshot(tip).written_at:%Y-%m-%d %H:%M}"
    assert texts[1] == [tip[:8], when, "branch main", "tag v1", "<b> 0"]
    assert texts[0][2:] == ["branch fix", wide]
    # 13 pixels high: 0.6 of that for most, all of it for wide ones
    assert int(root.attrib["width"]) > 2 * 26 + 8 + 30 * 13 + (8 + 16 + 10 + 30 + 6) * 8


def written(html: str) -> list[str]:
    """The text of HTML, without tags. What a repository contains must be escaped in it."""
    assert not re.search(r"<b>|<script|onerror|https?:", html)
    text = re.sub(r"<[^>]*>", "\n", html.partition("</style>")[2])
    return [line.strip() for line in unescape(text).splitlines() if line.strip()]


def test_notebooks_show_branches_sessions_and_the_history_of_a_cell_without_a_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = frazil.Repository.create(str(tmp_path / "ice"))
    name = "<b>t"
    with repo.transaction("main", message="<b>first", metadata={"author": "<b>Ada"}) as store:
        array = zarr.create_array(
            store, name=name, shape=(4, 2000), chunks=(2, 2), dtype="i4", dimension_names=["time", None]
        )
        array[:2, :2] = 1
    for number in range(ROWS + 5):
        repo.create_branch(f"b{number:02}", repo.lookup_branch("main"))
    repo.create_tag("v1", repo.lookup_branch("main"))
    repo.list_branches()
    session = repo.writable_session("main")
    zarr.open_array(session.store, path=name)[2:, :4] = 2
    unread = frazil.Repository.open(str(tmp_path / "ice")).readonly_session(branch="main")
    history = repo.history.history_of(name, (0, 0))

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a read")

    with monkeypatch.context() as patch:
        for method in ("get", "get_versioned", "head", "list"):
            patch.setattr(LocalStorage, method, refuse)
        shown = written(repo._repr_html_())
        tip = next(line for line in shown if line.endswith("<b>first"))
        assert tip.startswith(session.snapshot_id)
        assert shown.count(tip) == ROWS
        assert shown[1:3] == ["branch main:", tip]
        assert shown[1 + 2 * ROWS :][:4] == ["and:", "6 more branches", "tags:", "1"]
        shown = written(session._repr_html_())
        assert shown[shown.index("changes") + 2 :][:2] == ["updated_chunks:", f'{{"/{name}": 2 chunks}}']
        assert shown[shown.index("2 nodes") + 2 :] == ["/:", "group", f"/{name}:", "time 4, 2,000"]
        assert "nodes" not in unread._repr_html_()
        shown = written(history._repr_html_())  # type: ignore[attr-defined]  # a list for users
    assert [shown[5], *shown[7:]] == [session.snapshot_id, "<b>Ada", "<b>first"]
    session.discard_changes()
    assert "changes" not in written(session._repr_html_())


def test_differences_leave_out_what_is_empty() -> None:
    one = Diff(new_arrays={"/a"}, chunk_coordinates={"/a": np.zeros((1, 1), "u4")})
    html = one._repr_html_()
    assert re.findall(r'field-name">(\w+):', html) == ["new_arrays", "updated_chunks"]
    assert '{"/a": 1 chunk}' in html
    assert re.findall(r'field-value">(\w+)', Diff()._repr_html_()) == ["none"]


def test_values_name_modules_that_exist() -> None:
    def subclasses(cls: type) -> Iterator[type]:
        each: type
        for each in cls.__subclasses__():
            yield each
            yield from subclasses(each)

    for cls in subclasses(Record):
        path = cls.__dict__.get("shown_as")
        if not isinstance(path, str) or not cls.__module__.startswith(ROOMS):
            continue
        module, _, name = f"frazil.{path}".rpartition(".")
        # The reference has `repository.RepoStatus`. Here `frazil` has all of them.
        public = getattr(importlib.import_module(module), name, None) or getattr(frazil, name)
        assert public.__qualname__ == cls.__qualname__, path
