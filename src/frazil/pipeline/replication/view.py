"""Views: repositories whose chunks are references to the chunks of another repository, the source.

A chunk of a view is a *cell*. A cell with the elements of exactly one chunk of the source is a reference to
its bytes. Other cells are cut by the box: they are computed, and encoded with the codecs of the source.
A tag in the source protects the version that the view refers to.

The attribute `RECORD` of the root group names the source, its version and the box. So the same call again
compares the source with the version of the call before, and writes what has changed.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
import zarr

from frazil.arguments import conflicting, misfit, parse_bytes
from frazil.arrays.array import Array
from frazil.display import Shown
from frazil.errors import (
    ConflictError,
    ErrorKind,
    IcechunkError,
    InvalidInputError,
    OutcomeUnknownError,
    ReadOnlyError,
)
from frazil.format.chunk_table import ChunkTable, within
from frazil.format.columns import I64, U32
from frazil.format.ids import CHUNKS, id_from_text, id_to_text
from frazil.format.manifest import ChunkKind
from frazil.handle.repository import Repository, context_of
from frazil.jobs.blocks import groups
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.job import Job, Source, Target, Tasks, Version, digest, takes_versions, without_folders
from frazil.jobs.job_history import job_record
from frazil.jobs.job_run import run_job
from frazil.jobs.progress import Progress, Summary, size, with_size
from frazil.jobs.task_results import Outcome
from frazil.pipeline.replication.view_cells import ViewGrid, as_virtual, bounds_of, changed
from frazil.pipeline.transform.arrays import (
    ArrayInfo,
    array_info,
    arrays_below,
    names_of,
    record_of,
    require_dimensions,
    with_companions,
)
from frazil.pipeline.transform.labels import positions_by_label, positions_by_number
from frazil.remedies import argument
from frazil.repository.catalog.ancestry import mentioning
from frazil.repository.catalog.history_records import JOB
from frazil.repository.catalog.version_info import VIEW_TAG
from frazil.repository.ids import new_object_id
from frazil.repository.session.session import ForkSession, Session
from frazil.repository.settings.config import VirtualChunkContainer
from frazil.repository.settings.manifest_config import (
    ManifestConfig,
    ManifestVirtualChunkLocationCompressionConfig,
)
from frazil.storage.base import Storage, storage_label
from frazil.storage.foreign_objects import access_of, address_of

#: The attribute of the root group of a view.
RECORD: Final = "frazil_view"
_NAME: Final = "view"
#: The bytes of the values of one task.
_TASK: Final = 256_000_000


@dataclass(frozen=True, slots=True, repr=False)
class ViewSummary(Summary):
    """The result of `view_repository`.

    Attributes:
        version: The version of the view; None for a dry run.
        arrays: The number of arrays.
        chunks: The number of chunks that are references, or are inline.
        bytes: Their size as they are stored.
        copied: The number of chunks that the call computes, because the box cuts chunks of the source.
        copied_bytes: The size of their values, before compression.
        containers: The prefixes of URLs that readers authorise.
        tag: The tag in the source that protects the chunks; None without protection.
        done_before: Whether the view was up to date, so that the call changed nothing.
    """

    version: Version | None
    arrays: int
    chunks: int
    bytes: int
    copied: int
    copied_bytes: int
    containers: tuple[str, ...] = ()
    tag: str | None = None
    done_before: bool = False

    shown_as: ClassVar[str] = "pipeline.ViewSummary"

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "references", with_size(self.chunks, "chunk", self.bytes)
        yield "copied", with_size(self.copied, "chunk", self.copied_bytes)
        yield "containers", ", ".join(self.containers) or "none"
        yield "protection", f"tag {self.tag}" if self.tag else "none"
        if self.done_before:
            yield "done before", "the view was up to date"


@takes_versions
def view_repository(
    source: Source,
    target: Storage,
    *,
    paths: Sequence[str] = ("/",),
    isel: Mapping[str, Any] | None = None,
    sel: Mapping[str, Any] | None = None,
    rectilinear: bool = False,
    max_copy: int | str = "1GB",
    unprotected: bool = False,
    engine: Engine | EngineName | None = None,
    progress: Progress | None = None,
    dry_run: bool = False,
) -> ViewSummary:
    """Make a repository with a part of a version, whose chunks are references to those of the source.

    No whole chunk is copied. Chunks that the box cuts are computed, and encoded with the same codecs. If the
    box begins inside of a chunk, all chunks along this dimension are cut, because the chunks of an array have
    one length. Then choose a box that begins with a chunk, or ``rectilinear``. Inline chunks are copied.
    Virtual chunks of the source keep their locations.

    A tag in the source, ``view.NAME.ID``, protects the chunks from its expirations and garbage collections.
    Delete the tag when nobody needs the view. Only the newest version of the view is protected.

    The same call again brings the view up to date in one commit, which has only what changed. A version by
    tag or id never changes. Other nodes of the view stay. Readers authorise the containers of the result, see
    ``Repository.open``.

    Args:
        source: The `Repository` (the tip of its branch ``main``) or the `Version` to refer to.
        target: The storage of the view, which is empty or has an earlier view. The view is on ``main``.
        paths: Paths of arrays, or of groups for all arrays below them. Their coordinates are included.
            Default: all arrays.
        isel: Slices of positions by dimension, as in xarray. Default: all.
        sel: Slices of labels by dimension, which include their ends, as in xarray. Default: all.
        rectilinear: Whether an array whose box begins inside of a chunk gets chunks of unequal lengths, so
            that only the chunks at the edges are copied. Its readers need zarr 3.2 or newer, and zarr's
            option ``array.rectilinear_chunks``. Default: False.
        max_copy: The most bytes of values to compute, before compression: a number or a text such as
            ``"10GB"``. Default: ``"1GB"``.
        unprotected: Whether the source gets no tag. Then reads of the view fail after the source has expired
            the version and collected its chunks. A read-only source needs it. Default: False.
        engine: Where tasks run: an `Engine`, or ``"inline"``, ``"threads"``, ``"processes"``, ``"spark"`` or
            ``"sail"``. The default, None, is Spark where Spark is in use, else processes of this machine
            (`default_engine`).
        progress: A `Progress`, which shows the tasks. The default, None, shows nothing.
        dry_run: Whether to change nothing, and to return the numbers of chunks and bytes.

    Returns:
        What the view refers to and what was copied, as `ViewSummary`.

    Raises:
        InvalidInputError: The box is empty or is no box, or more than ``max_copy`` would be copied
            (``invalid-array-metadata``). ``unsupported-array`` if chunks of the source have no URL.
        ReadOnlyError: The source is read-only, and ``unprotected`` is False (``read-only-storage``).
        ConflictError: The target is no view, or its arrays have changes of their own
            (``repo-info-updated``).
        NodeNotFoundError: A path has no node.

    Examples:
        >>> import frazil, zarr
        >>> from frazil.pipeline import view_repository
        >>> repo = frazil.Repository.create("archive")
        >>> with repo.transaction("main", message="a row") as store:
        ...     options = {"shape": (9,), "chunks": (3,), "dtype": "i4", "dimension_names": ["x"]}
        ...     zarr.create_array(store, name="t", **options)[:] = range(9)
        >>> storage = frazil.in_memory_storage()
        >>> view = view_repository(repo, storage, isel={"x": slice(3, 9)}, engine="inline")
        >>> frazil.read(view.version.session(), "t").tolist(), view.copied
        ([3, 4, 5, 6, 7, 8], 0)
    """
    run = _ViewRun(
        Version.of(source),
        target,
        {
            "paths": list(names_of(paths)),
            "isel": {dim: record_of(each) for dim, each in (isel or {}).items()},
            "sel": {dim: record_of(each) for dim, each in (sel or {}).items()},
            "rectilinear": rectilinear,
        },
    )
    return run.run(isel or {}, sel or {}, parse_bytes(max_copy), unprotected, dry_run, engine, progress)


# The run


@dataclass(frozen=True, slots=True, eq=False)
class _ViewArray:
    """What a call makes of one array.

    ``refs`` are the references to set, and ``removed`` the coordinates of those to delete. ``low`` and
    ``high`` are the blocks of elements of the view to compute, shape (n, dimensions), of ``cells`` chunks.
    ``chunks`` and ``bytes`` count all references of the view. ``urls`` are the objects of virtual chunks of
    the source.
    """

    path: str
    document: bytes
    box: Sequence[range]
    refs: ChunkTable
    removed: U32
    low: I64
    high: I64
    itemsize: int
    cells: int
    chunks: int
    bytes: int
    urls: list[str]

    @property
    def work(self) -> I64:
        """The size of the values of each block."""
        return np.asarray((self.high - self.low).prod(axis=1) * self.itemsize, np.int64)


def _copy_cells(fork: ForkSession, shared: Any, item: Any) -> Outcome:
    """Compute blocks of cells: the task."""
    source, boxes = shared
    path, low, high = item
    old, new = Array(source, path), Array(fork, path)
    written = 0
    with zarr.config.set({"array.rectilinear_chunks": True}):
        for start, stop in zip(low.tolist(), high.tolist(), strict=True):
            part = [where[a:b] for where, a, b in zip(boxes[path], start, stop, strict=True)]
            values = old[tuple(slice(each.start, each[-1] + 1, each.step) for each in part)]
            new[tuple(map(slice, start, stop))] = values
            written += values.nbytes
    return Outcome(chunks=len(low), bytes_read=written, bytes_written=written)


@dataclass(eq=False)
class _ViewRun:
    """One call. ``request`` is what the record says of its arguments."""

    version: Version
    target: Storage
    request: dict[str, Any]

    @functools.cached_property
    def source(self) -> Session:
        """The session that reads the source."""
        return self.version.session()

    @functools.cached_property
    def address(self) -> tuple[str, Any] | None:
        """The URL of the chunk files of the source, and the store of a container for them."""
        return address_of(self.version.repo.storage, CHUNKS)

    def run(
        self,
        isel: Mapping[str, Any],
        sel: Mapping[str, Any],
        max_copy: int,
        unprotected: bool,
        dry_run: bool,
        engine: Engine | EngineName | None,
        progress: Progress | None,
    ) -> ViewSummary:
        """Plan, protect the source, and commit."""
        repo = self.version.repo
        if repo.storage.is_read_only and not (unprotected or dry_run):
            raise ReadOnlyError(
                f"the source must be writable, so that a tag can protect the chunks of the view, got "
                f"{repo.storage.label()}, which is read-only",
                ErrorKind.READ_ONLY_STORAGE,
            ).with_remedy(
                "Pass {}: then reads of the view fail after the source has collected its chunks",
                argument(unprotected=True),
            )
        access = dict(context_of(repo).virtual.credentials)
        if self.address is not None:
            access[self.address[0]] = access_of(repo.storage)
        view = base = None
        if Repository.exists(self.target):
            view = Repository.open(self.target, authorize_virtual_chunk_access=access)
            base = view.readonly_session("main")
        record = self._record(view, base)
        arrays, boxes = self._boxes(isel, sel)
        paths = [each.path for each in arrays]
        hashed = digest(self.source, paths)
        is_same = record.get("request") == self.request and record.get("digest") == hashed
        name = record.get("name") or self._name()
        is_protected = bool(record) and self._tags(name).get(record["tag"]) == record["snapshot"]
        plan = self._plan(arrays, boxes, record, base)
        containers = self._containers(plan)
        summary = ViewSummary(
            None,
            len(plan),
            sum(each.chunks for each in plan),
            sum(each.bytes for each in plan),
            sum(each.cells for each in plan),
            int(sum(each.work.sum() for each in plan)),
            tuple(each.url_prefix for each in containers),
        )
        if summary.copied_bytes > max_copy:
            raise misfit(
                f"the box must cut chunks with at most {size(max_copy)} of values, got "
                f"{size(summary.copied_bytes)}, most of them of "
                f"`{max(plan, key=lambda each: each.work.sum()).path}`"
            ).with_remedy(
                "Choose a box that begins with a chunk along each dimension, or pass {} or a larger {}",
                argument(rectilinear=True),
                argument(max_copy=...),
            )
        if dry_run:
            return summary
        if view is not None and base is not None and is_same and (is_protected or unprotected):
            tag = record.get("tag") if is_protected else None
            version = Version(view, base.snapshot_id, "main")
            return replace(summary, version=version, tag=tag, done_before=True)
        tag = None if unprotected else self._protect(name)
        try:
            view = self._opened(view, containers, access)
            written = {
                "source": without_folders(storage_label(repo.storage)),
                "branch": self.version.branch,
                "snapshot": self.version.snapshot_id,
                "digest": hashed,
                "request": self.request,
                "name": name,
                "tag": tag,
                "boxes": {path: [bounds_of(each) for each in box] for path, box in boxes.items()},
            }
            job = Job(
                _NAME,
                Target(view),
                functools.partial(self._prepare, plan, written, base, record),
                _copy_cells,
                parameters={**self.request, "tag": tag},
                inputs=(self.version.input(paths),),
                writes=tuple(paths),
                message=f"View of {self.version.place()}",
            )
            result = run_job(job, engine, progress=progress)
        except OutcomeUnknownError:
            raise  # the view may be there
        except Exception:
            if tag is not None and tag != record.get("tag"):
                with suppress(IcechunkError):
                    repo.delete_tag(tag)
            raise
        for old in self._tags(name).keys() - {tag}:
            with suppress(IcechunkError):  # the next refresh deletes it
                repo.delete_tag(old)
        prefixes = tuple(view.config.virtual_chunk_containers or {})
        return replace(summary, version=result.version, tag=tag, containers=prefixes)

    def _record(self, view: Repository | None, base: Session | None) -> dict[str, Any]:
        """Return the record of an earlier call; empty for a new view. Raises ``ConflictError``."""
        if view is None or base is None:
            return {}
        nodes = base.workspace.node_table()
        root = base.workspace.node("/")
        attributes = {} if root is None else json.loads(root.user_data).get("attributes") or {}
        record: dict[str, Any] = attributes.get(RECORD) or {}
        if not record:
            if len(nodes) > 1:
                raise self._foreign("a repository that is no view. Choose another storage")
            return {}
        info, tip = context_of(view).catalog.repo_info(), id_from_text(base.snapshot_id)
        for entry in mentioning(info, tip, JOB, _NAME):
            job = job_record(entry.metadata, id_to_text(entry.id))
            if job is not None and job.name == _NAME:
                after = view.readonly_session(snapshot_id=id_to_text(entry.id))
                if digest(after, job.outputs) != digest(base, job.outputs):
                    raise self._foreign(
                        "a view whose arrays were changed after the commit of the view. Move these changes "
                        "to other arrays, and reset the branch `main` of the view to this commit"
                    )
                break
        return record

    def _foreign(self, has: str) -> ConflictError:
        return ConflictError(
            message=f"target must be empty or have an earlier view, got {self.target.label()} with {has}",
            kind=ErrorKind.REPO_INFO_UPDATED,
        )

    def _boxes(
        self, isel: Mapping[str, Any], sel: Mapping[str, Any]
    ) -> tuple[list[ArrayInfo], dict[str, list[range]]]:
        """Return the arrays, and for each one the positions along its dimensions."""
        arrays = with_companions(self.source, arrays_below(self.source, names_of(self.request["paths"])))
        if not arrays:
            raise misfit("paths must name at least one array, got none")
        require_dimensions([*isel, *sel], arrays)
        if both := sorted(set(isel) & set(sel)):
            raise conflicting(f"A dimension must be in isel or in sel, got {both[0]!r} in both")

        known: dict[tuple[str, str | None, int], range] = {}  # labels are read once
        boxes: dict[str, list[range]] = {}
        for array in arrays:
            keys = [(array.group, *each) for each in zip(array.dims, array.shape, strict=True)]
            for key in (each for each in keys if each not in known):
                known[key] = self._positions(array, key[1], key[2], isel, sel)
            boxes[array.path] = [known[key] for key in keys]
        return arrays, boxes

    def _positions(self, array: ArrayInfo, dim: Any, length: int, isel: Any, sel: Any) -> range:
        """Return the positions of the box along a dimension: not empty, and going up."""
        wanted: Any
        where: Any
        if dim in isel:
            wanted, where = isel[dim], positions_by_number(isel[dim], array, dim)
        elif dim in sel:
            wanted, where = sel[dim], positions_by_label(self.source, array, dim, sel[dim], None)
        else:
            return range(length)
        steps = np.unique(np.diff(where)).tolist() if isinstance(where, tuple) else []
        if len(steps) == 1 and steps[0] > 0:
            where = range(where[0], where[-1] + 1, steps[0])
        if not isinstance(wanted, slice) or not isinstance(where, range) or not where or where.step < 1:
            raise misfit(
                f"the box must be a slice along {dim!r} with positions that go up in equal steps, got "
                f"{wanted!r}, which selects {'none' if where in (range(0), ()) else 'others'}"
            )
        return where

    def _plan(
        self, arrays: Sequence[ArrayInfo], boxes: Any, record: Mapping[str, Any], base: Session | None
    ) -> list[_ViewArray]:
        """Return what to do for each array."""
        before: Session | None = None
        if record:
            with suppress(IcechunkError):  # without the version, all cells at edges are computed again
                before = self.version.repo.readonly_session(snapshot_id=record["snapshot"])
        plan = []
        for array in arrays:
            path, box = array.path, boxes[array.path]
            grid = ViewGrid.of(array, box, rectilinear=self.request["rectilinear"])
            table, present = self.source.chunk_table(path), ChunkTable.empty(array.ndim)
            old: ChunkTable | None = None
            earlier: ArrayInfo | None = None
            if base is not None and base.workspace.is_array(path):
                earlier = array_info(base, path)
                present = base.chunk_table(path).of_rank(array.ndim)
                present = present.select_chunks(within(present.index, grid.shape))
                is_same = earlier.ndim == array.ndim and grid.has_cells_of(earlier, record["boxes"].get(path))
                if is_same and before is not None and before.workspace.is_array(path):
                    old = before.chunk_table(path)
            refs = grid.whole_chunks(table)
            if self.address is None and (refs.kind == ChunkKind.NATIVE).any():
                raise InvalidInputError(
                    f"the chunks of `{path}` must have URLs, but they are in "
                    f"{self.version.repo.storage.label()}. Copy the repository to a folder or a bucket first",
                    ErrorKind.UNSUPPORTED_ARRAY,
                )
            urls = context_of(self.version.repo).virtual.urls(refs.foreign.locations.texts())
            refs = as_virtual(refs, self.address[0] if self.address else "", urls)
            cells = grid.cut_cells(table, old, earlier)
            # A copy has no elements behind the end of an array that was made shorter.
            short = (refs.kind == ChunkKind.INLINE) & grid.is_short(refs.index)
            cells = np.concatenate([cells, refs.index[short].astype(np.int64)])
            refs = refs.select_chunks(~short)
            gone = refs.find_chunks(present.index) < 0
            if old is not None:  # cells at edges stay
                again = ChunkTable.from_absent(cells.astype(np.uint32))
                gone &= ~grid.is_cut(present.index) | (again.find_chunks(present.index) >= 0)
            itemsize = Array(self.source, path).dtype.itemsize
            low, high = grid.blocks(cells, itemsize)
            new = refs.select_chunks(changed(refs, present))
            numbers = itemsize, len(cells), len(refs), int(refs.length.sum())
            plan.append(
                _ViewArray(path, grid.document(), box, new, present.index[gone], low, high, *numbers, urls)
            )
        return plan

    def _containers(self, plan: Sequence[_ViewArray]) -> list[VirtualChunkContainer]:
        """Return the containers of the references."""
        out: dict[str, VirtualChunkContainer] = {}
        for container in context_of(self.version.repo).virtual.containers:
            prefix = container.url_prefix
            if any(url.startswith(prefix) for each in plan for url in each.urls):
                out[prefix] = VirtualChunkContainer(prefix, container.store)
        if self.address is not None:
            out[self.address[0]] = VirtualChunkContainer(*self.address)
        return list(out.values())

    def _name(self) -> str:
        """Return a name for the view in the source: of the folder or prefix of the target, and a hash.

        A call after a killed one finds the tag by this name. All storages in memory have one label.
        """
        label = storage_label(self.target)
        label = id_to_text(new_object_id()) if label == "in-memory" else label
        folder = re.sub(r"[^A-Za-z0-9-]+", "-", label.rstrip("/").rpartition("/")[2]).strip("-")[:32]
        return f"{folder or _NAME}-{hashlib.sha256(label.encode()).hexdigest()[:8]}"

    def _tags(self, name: str) -> dict[str, str]:
        """Return the tags of a view in the source, with their snapshots."""
        tags = context_of(self.version.repo).catalog.repo_info().tags
        return {tag: id_to_text(id_) for tag, id_ in tags.items() if tag.startswith(f"{VIEW_TAG}{name}.")}

    def _protect(self, name: str) -> str:
        """Return a tag of the source at the version, which is created if there is none."""
        for tag, snapshot in self._tags(name).items():
            if snapshot == self.version.snapshot_id:
                return tag
        # The name of a deleted tag cannot be used again.
        tag = f"{VIEW_TAG}{name}.{id_to_text(new_object_id())[:8]}"
        self.version.repo.create_tag(tag, self.version.snapshot_id)
        return tag

    def _opened(
        self, view: Repository | None, containers: Sequence[VirtualChunkContainer], access: Any
    ) -> Repository:
        """Return the repository of the view, with the containers in its saved configuration."""
        if view is None:
            view = Repository.create(self.target, authorize_virtual_chunk_access=access)
        config = view.config
        for each in containers:
            config.set_virtual_chunk_container(each)
        view = view.reopen(config)
        view.save_config()
        # Names of chunk files are random: no dictionary makes them smaller, and each manifest would try one.
        config.manifest = config.manifest or ManifestConfig()
        config.manifest.virtual_chunk_location_compression = ManifestVirtualChunkLocationCompressionConfig(
            min_num_chunks=1 << 32
        )
        return view.reopen(config)

    def _prepare(
        self,
        plan: Sequence[_ViewArray],
        record: dict[str, Any],
        base: Session | None,
        earlier: Mapping[str, Any],
        session: Session,
    ) -> Tasks:
        """Set metadata and references, and return the tasks for the cells at edges."""
        if base is not None and session.snapshot_id != base.snapshot_id:
            raise self._foreign("a commit during the call. Run it again")
        workspace, source = session.workspace, self.source.workspace
        paths = {each.path for each in plan}
        for path in sorted((earlier.get("boxes") or {}).keys() - paths):
            if workspace.is_array(path):
                workspace.delete_node(path)
        groups_above = {
            "/".join(path.split("/")[:end]) or "/" for path in paths for end in range(1, path.count("/") + 1)
        }
        for path in sorted(groups_above):
            node = source.node(path)
            document: dict[str, Any] = {"zarr_format": 3, "node_type": "group"}
            document = document if node is None else json.loads(node.user_data)
            if path == "/":
                document["attributes"] = {**(document.get("attributes") or {}), RECORD: record}
            workspace.set_node(path, json.dumps(document).encode())
        items: list[Any] = []
        for each in plan:
            workspace.set_node(each.path, each.document)
            if len(each.removed):
                workspace.delete_refs(each.path, each.removed)
            if len(each.refs):
                workspace.set_refs(each.path, each.refs)
            bounds = groups(each.work, _TASK).tolist()
            items += [(each.path, each.low[a:b], each.high[a:b]) for a, b in itertools.pairwise(bounds)]
        positions = {each.path: each.box for each in plan}
        return Tasks(items, (self.source, positions) if items else None)
