"""The methods of ``Repository`` for its history: snapshots, operations, differences between versions.

In a graph, each branch has a lane: ``main`` the first, the others by name. A commit is in the lane of the
first branch that contains it. A lane ends at the parent of its oldest commit, in another lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from itertools import islice, pairwise
from typing import Final, NamedTuple
from unicodedata import east_asian_width

import numpy as np

from frazil.display import PACKAGE, table_html
from frazil.format.ids import id_to_text
from frazil.format.repo_info import RepoInfo
from frazil.handle.sessions import RepositoryBase, snapshot_of_version
from frazil.repository.asynchronous import SyncAsyncIterator, awaitable
from frazil.repository.catalog import presentation, repo_changes
from frazil.repository.catalog.context import files_of, snapshot_errors
from frazil.repository.catalog.presentation import Update, UpdateType, history_infos, snapshot_info
from frazil.repository.catalog.repo_changes import MAIN, require_snapshot, resolve_id
from frazil.repository.catalog.repo_update import entries_of, ops_parts, ops_start
from frazil.repository.catalog.version_info import Diff, ManifestFileInfo, SnapshotInfo
from frazil.repository.clock import to_datetime
from frazil.repository.session.differences import difference

_ANSI: Final = (34, 32, 35, 33, 36, 31)
_COLOURS: Final = ("#2f6fb7", "#2e8b57", "#8e4fa8", "#b8860b", "#1f8a8a", "#b03a3a")
_STEP: Final = 26
_LONGEST: Final = 60
_FONT: Final = 13
#: Pixels per character: the characters of monospaced fonts are 0.6 to 0.65 of the font size wide.
_CHARACTER: Final = 9


class Label(NamedTuple):
    """The text next to a commit. ``message`` is the first line of the commit message, shortened."""

    id: str
    branches: tuple[str, ...]
    tags: tuple[str, ...]
    time: datetime
    message: str


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One commit: its lane, the lanes that continue below it, the lanes that end at it, and its label."""

    lane: int
    below: frozenset[int]
    joined: frozenset[int]
    label: Label


@dataclass(frozen=True, slots=True)
class AncestryGraph:
    """A graph of the commits that some refs reach. ``print`` shows text, notebooks show an image."""

    dots: tuple[GraphNode, ...]
    lanes: int = 1
    plain: bool = False

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines: list[str] = []
        for dot in self.dots:
            bars = (self._ink("│", lane) + " " if lane in dot.below else "  " for lane in range(self.lanes))
            lines += [self._row(dot), "".join(bars)]
        return "".join(f"{line}\n" for line in lines[:-1])

    def _row(self, dot: GraphNode) -> str:
        last = max(dot.joined, default=dot.lane)
        cells = []
        for lane in range(self.lanes):
            line = "─" if dot.lane <= lane < last else " "
            if lane == dot.lane:
                cells.append(self._ink("●", lane) + line)
            elif lane in dot.joined:
                cells.append(self._ink("╯", lane) + line)
            elif lane in dot.below:
                cells.append(self._ink("│", lane) + " ")
            else:
                cells.append(line * 2)
        id_, branches, tags, _, message = dot.label
        names = ", ".join((*branches, *tags))
        return f"{''.join(cells)}{id_}{f' ({names})' if names else ''} {message}"

    def _ink(self, mark: str, lane: int) -> str:
        return mark if self.plain else f"\x1b[{_ANSI[lane % len(_ANSI)]}m{mark}\x1b[0m"

    def _repr_svg_(self) -> str:
        def place(number: int) -> int:
            return _STEP // 2 + number * _STEP

        left, shapes, columns = self.lanes * _STEP, list[str](), 0
        for row, (dot, after) in enumerate(pairwise(self.dots)):
            for lane in sorted(dot.below - after.joined):
                ends = f'x1="{place(lane)}" y1="{place(row)}" x2="{place(lane)}" y2="{place(row + 1)}"'
                shapes.append(f"<line {ends} {self._stroke(lane)}/>")
        for row, dot in enumerate(self.dots):
            x, y = place(dot.lane), place(row)
            for lane in sorted(dot.joined):
                curve = f"M {place(lane)} {y - _STEP} Q {place(lane)} {y} {x} {y}"
                shapes.append(f'<path d="{curve}" fill="none" {self._stroke(lane)}/>')
        for row, dot in enumerate(self.dots):
            id_, branches, tags, time, message = dot.label
            names = [f"branch {name}" for name in branches] + [f"tag {name}" for name in tags]
            parts = [(id_, ""), (f"{time:%Y-%m-%d %H:%M}", 'opacity="0.65"')]
            parts += [(name, 'font-weight="bold"') for name in names]
            parts += [(message, "")] if message else []
            wide = [sum(2 if east_asian_width(each) in "WF" else 1 for each in text) for text, _ in parts]
            columns = max(columns, sum(wide) + 2 * len(wide))
            texts = "".join(
                f"<tspan{' dx="1.2em"' if number else ''} {attributes}>{escape(text)}</tspan>"
                for number, (text, attributes) in enumerate(parts)
            )
            shapes.append(
                f'<circle cx="{place(dot.lane)}" cy="{place(row)}" r="6" fill="{self._colour(dot.lane)}"/>'
                f'<text x="{left + 8}" y="{place(row) + 5}">{texts}</text>'
            )
        # The text colour of the page, because pages are light or dark. Wide text overflows and is not cut.
        width, height = left + 20 + columns * _CHARACTER, len(self.dots) * _STEP
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" fill="currentColor" '
            f'font-family="monospace" font-size="{_FONT}px" style="overflow: visible; max-width: none">'
        )
        return head + "".join(shapes) + "</svg>"

    def _repr_html_(self) -> str:
        return f"<div>{self._repr_svg_()}</div>"

    def _stroke(self, lane: int) -> str:
        return f'stroke="{self._colour(lane)}" stroke-width="2"'

    def _colour(self, lane: int) -> str:
        return "currentColor" if self.plain else _COLOURS[lane % len(_COLOURS)]


def ancestry_graph(
    info: RepoInfo, branches: Mapping[str, bytes], tip: bytes | None = None, *, plain: bool = False
) -> AncestryGraph:
    """Draw the snapshots that ``branches`` reach, or that ``tip`` reaches."""
    table = info.snapshots
    named = sorted(branches, key=lambda name: (name != MAIN, name))
    branches_of = _names_of((name, branches[name]) for name in named)
    tags_of = _names_of(sorted(info.tags.items()))
    tips = [branches[name] for name in named] if tip is None else [tip]
    chains = [table.chain(require_snapshot(info, id_)) for id_ in tips]
    # After the walks, because a table that is read on demand has no rows before them.
    lane_of = np.full(len(table), -1, np.int64)
    joins: dict[int, set[int]] = {}
    for lane, rows in enumerate(chains):
        taken = np.flatnonzero(lane_of[rows] >= 0)
        own = rows[: taken[0]] if len(taken) else rows
        lane_of[own] = lane
        if len(taken) and len(own):
            joins.setdefault(int(rows[taken[0]]), set()).add(lane)
    shown = np.flatnonzero(lane_of >= 0)
    newest_first = shown[np.argsort(table.flushed_at()[shown], kind="stable")[::-1]]
    parents = table.parents()[newest_first].tolist()
    dots: list[GraphNode] = []
    open_lanes: frozenset[int] = frozenset()
    lanes_of_rows = lane_of[newest_first].tolist()
    for row, lane, parent in zip(newest_first.tolist(), lanes_of_rows, parents, strict=True):
        joined = frozenset(joins.get(row, ()))
        passing = open_lanes - joined - {lane}
        open_lanes = passing if parent < 0 else passing | {lane}
        entry = table.entry(row)
        label = Label(
            id_to_text(entry.id)[:8],
            branches_of.get(entry.id, ()),
            tags_of.get(entry.id, ()),
            to_datetime(entry.flushed_at),
            first_line(entry.message),
        )
        dots.append(GraphNode(lane, open_lanes, joined, label))
    return AncestryGraph(tuple(dots), len(tips), plain)


def _names_of(refs: Iterable[tuple[str, bytes]]) -> dict[bytes, tuple[str, ...]]:
    names: dict[bytes, tuple[str, ...]] = {}
    for name, id_ in refs:
        names[id_] = (*names.get(id_, ()), name)
    return names


def first_line(message: str) -> str:
    """Return the first line of a message, shortened, without characters that control a terminal."""
    line = "".join(filter(str.isprintable, message.partition("\n")[0]))
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."


#: How many rows of a history are shown.
ROWS: Final = 20

type Row = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HistoryTable:
    """A heading, the names of columns, and a function that reads the rows."""

    heading: str
    columns: Row
    rows: Callable[[], Iterable[Row]]

    def _shown(self) -> tuple[list[Row], list[str]]:
        rows = list(islice(self.rows(), ROWS + 1))
        return rows[:ROWS], ["..."] if len(rows) > ROWS else []

    def _repr_html_(self) -> str:
        rows, more = self._shown()
        return table_html(self.heading, self.columns, rows, "".join(more))

    def __str__(self) -> str:
        rows, more = self._shown()
        shown = [self.columns, *rows]
        widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in shown
        ]
        return "\n".join([f"<{PACKAGE}: {self.heading}>", *lines, *more])


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def ref_rows(info: RepoInfo) -> Iterator[tuple[str, str]]:
    """Yield the branches with their last commits, and the number of tags, as rows of a record."""
    branches = sorted(info.branches, key=lambda name: (name != MAIN, name))
    for name in branches[:ROWS]:
        entry = info.snapshots.entry(info.snapshots.find_snapshot(info.branches[name]))
        time = _time(to_datetime(entry.flushed_at))
        yield f"branch {name}", f"{id_to_text(entry.id)} {time} {first_line(entry.message)}"
    if len(branches) > ROWS:
        yield "and", f"{len(branches) - ROWS:,} more branches"
    yield "tags", f"{len(info.tags):,}"


class VersionHistory(RepositoryBase):
    """Methods of ``Repository`` that read its history."""

    def lookup_snapshot(self, snapshot_id: str) -> SnapshotInfo:
        """Return the time, message, metadata and parent of a snapshot.

        Args:
            snapshot_id: The id of the snapshot, or the first characters of an id (4 or more, if only one id
                begins with them).

        Returns:
            What the repository records of the snapshot.

        Raises:
            SnapshotNotFoundError: ``snapshot-not-found`` if there is no such snapshot.
            InvalidInputError: ``invalid-snapshot-id`` if it is not an id, or if several ids begin with it.
        """
        info = self._info()
        row = repo_changes.require_snapshot(info, resolve_id(snapshot_id, lambda: info))
        return snapshot_info(info.snapshots.entry(row))

    def ancestry(
        self, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
    ) -> SyncAsyncIterator[SnapshotInfo]:
        """Return a snapshot and all its ancestors, newest first.

        Exactly one of the arguments names the snapshot. Consoles and notebooks show the result as a table of
        the newest snapshots.

        Args:
            branch: The name of a branch, to begin at its tip.
            tag: The name of a tag.
            snapshot_id: The id of a snapshot, or the first characters of an id.

        Returns:
            An iterator for ``for`` and for ``async for``. The fields of a snapshot are decoded when the
            program reads them. If the repository is damaged, such a read raises ``FormatError``.

        Raises:
            RefNotFoundError: ``ref-not-found`` if there is no such branch or tag.
            SnapshotNotFoundError: ``snapshot-not-found`` if there is no such snapshot.
            ValueError: If none or several of the arguments are given.
        """
        info = self._info()
        tip = snapshot_of_version(info, branch, tag, snapshot_id)
        ref = f"branch {branch}" if branch else f"tag {tag}" if tag else f"snapshot {snapshot_id}"
        table = HistoryTable(
            f"history of {ref}, newest first",
            ("id", "written at (UTC)", "message"),
            lambda: (
                (each.id, _time(each.written_at), first_line(each.message))
                for each in history_infos(info, tip)
            ),
        )
        return SyncAsyncIterator(history_infos(info, tip), table)

    def ancestry_graph(
        self,
        *,
        branch: str | None = None,
        tag: str | None = None,
        snapshot_id: str | None = None,
        plain: bool = False,
    ) -> AncestryGraph:
        """Draw the history of all branches, or of one version.

        At most one of ``branch``, ``tag`` and ``snapshot_id`` names the version. Without any of them, the
        graph shows all branches.

        Args:
            branch: The name of a branch.
            tag: The name of a tag.
            snapshot_id: The id of a snapshot, or the first characters of an id.
            plain: Whether to draw without colours.

        Returns:
            The graph: text for ``print``, an SVG image in notebooks.

        Raises:
            RefNotFoundError: ``ref-not-found`` if there is no such branch or tag.
            SnapshotNotFoundError: ``snapshot-not-found`` if there is no such snapshot.
            ValueError: If several of the arguments are given.

        Examples:
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> print(repo.ancestry_graph(plain=True), end="")
            ● 1CECHNKR (main) Repository initialized
        """
        info = self._info()
        if (branch, tag, snapshot_id) == (None, None, None):
            return ancestry_graph(info, info.branches, plain=plain)
        branches = {} if branch is None else {branch: repo_changes.branch_tip(info, branch)}
        return ancestry_graph(
            info, branches, snapshot_of_version(info, branch, tag, snapshot_id), plain=plain
        )

    def ops_log(self) -> SyncAsyncIterator[Update]:
        """Return all operations on the repository, newest first.

        Consoles and notebooks show the result as a table of the newest operations. If a garbage collection
        has removed older operations (``keep_ops``), the last entry is ``UpdateType.LogStart``.

        Returns:
            An iterator for ``for`` and for ``async for``. It reads older operations from the storage when
            they are needed.

        Examples:
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.create_branch("dev", "main")
            >>> [type(update.kind).__name__ for update in repo.ops_log()]
            ['BranchCreated', 'RepoInitialized']
        """
        info = self._info_v2()

        def updates() -> Iterator[Update]:
            part = info
            for name, part in ops_parts(self.storage, info):  # the last part is needed below
                yield from map(presentation.update, entries_of(name, part))
            if (start := ops_start(part)) is not None:
                yield Update(UpdateType.LogStart(), to_datetime(start), None)

        table = HistoryTable(
            "operations, newest first",
            ("time (UTC)", "operation"),  # such as `NewCommit(branch="main", new_snap_id=...)`
            lambda: (
                (_time(each.updated_at), first_line(repr(each.kind).rpartition("UpdateType.")[2]))
                for each in updates()
            ),
        )
        return SyncAsyncIterator(updates(), table)

    def diff(
        self,
        *,
        from_branch: str | None = None,
        from_tag: str | None = None,
        from_snapshot_id: str | None = None,
        to_branch: str | None = None,
        to_tag: str | None = None,
        to_snapshot_id: str | None = None,
    ) -> Diff:
        """Return the differences between two versions.

        Exactly one of the ``from_`` arguments and one of the ``to_`` arguments name the versions. If the
        first version is an ancestor of the second, the result contains all that the commits between them did.
        Otherwise (for example on two branches, or backwards), the method compares the two versions. It
        identifies nodes by their ids, so moved nodes are recognised.

        Args:
            from_branch: The branch of the first version.
            from_tag: Its tag.
            from_snapshot_id: Its snapshot id, or the first characters of an id.
            to_branch: The branch of the second version.
            to_tag: Its tag.
            to_snapshot_id: Its snapshot id, or the first characters of an id.

        Returns:
            The paths of changed nodes and the indices of changed chunks.

        Raises:
            RefNotFoundError: ``ref-not-found`` if there is no such branch or tag.
            SnapshotNotFoundError: ``snapshot-not-found`` if there is no such snapshot.
            ValueError: If none or several of the arguments of one version are given.

        Examples:
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.create_tag("empty", "main")
            >>> with repo.transaction("main", message="a group") as store:
            ...     group = zarr.create_group(store, path="g")
            >>> sorted(repo.diff(from_tag="empty", to_branch="main").new_groups)
            ['/', '/g']
        """
        info = self._info()
        before = snapshot_of_version(info, from_branch, from_tag, from_snapshot_id)
        after = snapshot_of_version(info, to_branch, to_tag, to_snapshot_id)
        with snapshot_errors():
            return presentation.diff(difference(self._context, info, before, after))

    def list_manifest_files(self, snapshot_id: str) -> list[ManifestFileInfo]:
        """Return the manifest files of a snapshot.

        Args:
            snapshot_id: The id of the snapshot, or the first characters of an id.

        Returns:
            The id, the size in bytes and the number of chunk references of each file.

        Raises:
            SnapshotNotFoundError: ``snapshot-not-found`` if there is no such snapshot.
            InvalidInputError: ``invalid-snapshot-id`` if it is not an id, or if several ids begin with it.

        Examples:
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="an array") as store:
            ...     array = zarr.create_array(store, name="t", shape=(2,), dtype="i4")
            ...     array[:] = [1, 2]
            >>> [file.num_chunk_refs for file in repo.list_manifest_files(repo.lookup_branch("main"))]
            [1]
        """
        id_ = resolve_id(snapshot_id, self._info)
        with files_of(self._context, id_):
            files = self._context.assets.snapshot(id_).manifests
        return [
            ManifestFileInfo(id_to_text(id_.tobytes()), int(size), int(count))
            for id_, size, count in zip(files.ids, files.size_bytes, files.num_chunk_refs, strict=True)
        ]

    def async_ancestry(
        self, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
    ) -> SyncAsyncIterator[SnapshotInfo]:
        """Return the result of ``ancestry``, for ``async for``."""
        return self.ancestry(branch=branch, tag=tag, snapshot_id=snapshot_id)

    def ops_log_async(self) -> SyncAsyncIterator[Update]:
        """Return the result of ``ops_log``, for ``async for``."""
        return self.ops_log()

    lookup_snapshot_async: Final = awaitable(lookup_snapshot)
    ancestry_graph_async: Final = awaitable(ancestry_graph)
    diff_async: Final = awaitable(diff)
    list_manifest_files_async: Final = awaitable(list_manifest_files)
