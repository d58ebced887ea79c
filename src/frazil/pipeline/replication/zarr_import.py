"""Imports of Zarr stores of version 3: the bytes of their chunks become chunks of a repository.

Chunks are not decoded. The commits are checkpoints: what a version has is not copied again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

from frazil.arguments import parse_bytes
from frazil.changes.change_set import table_of
from frazil.changes.zarr_metadata import parse_node
from frazil.errors import ConflictError, ErrorKind
from frazil.format.chunk_table import ChunkTable
from frazil.format.columns import I64, U32
from frazil.handle.upgrade import ZarrStore, chunk_objects, read_zarr_store, repository_document
from frazil.jobs.blocks import groups
from frazil.jobs.engine import Engine, EngineName, engine_of, task_bytes
from frazil.jobs.job import Job, Target, Tasks, takes_versions
from frazil.jobs.job_run import run_job
from frazil.jobs.progress import Progress
from frazil.jobs.task_results import Outcome
from frazil.pipeline.replication.operation import AT_ONCE, BYTES_PER_OBJECT, BYTES_PER_TASK, CopySummary
from frazil.repository.paths import absolute
from frazil.repository.session.session import ForkSession, Session
from frazil.storage.base import Storage, storage_label
from frazil.threads import Purpose, thread_pool

_NAME: Final = "from_zarr"
#: The document of a group without attributes, which gets those of the store.
_GROUP: Final = b'{"zarr_format": 3, "node_type": "group", "attributes": {}}'


@dataclass(frozen=True, slots=True, eq=False)
class _Chunks:
    """Chunk objects of an array: their keys, coordinates of shape (n, ndim), and sizes in bytes."""

    path: str
    keys: list[str]
    index: U32
    sizes: I64

    def part(self, start: int, stop: int) -> _Chunks:
        """Return some of the rows."""
        return _Chunks(self.path, self.keys[start:stop], self.index[start:stop], self.sizes[start:stop])


@takes_versions
def from_zarr(
    source: Storage,
    to: Target,
    *,
    checkpoint: int | str = "10GB",
    message: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    engine: Engine | EngineName | None = None,
    progress: Progress | None = None,
    dry_run: bool = False,
) -> CopySummary:
    """Copy the groups, arrays and chunks of a Zarr store of version 3 into a repository, without decoding.

    The chunks have the same bytes and codecs as in the store, shards too. Consolidated metadata are left out.
    `ingest` reads stores of version 2, and `frazil adopt` refers to the chunks of a store without a copy.

    A call adds what the branch does not have: new nodes, new chunks, and longer arrays. It does not compare
    chunks that both have. After an interruption, the same call continues after the last commit.

    Args:
        source: The storage of the Zarr store: a folder, or a prefix of a bucket.
        to: The `Target`: a repository, a branch, and the group of the root of the store.
        checkpoint: The bytes after which the call commits what it has copied: a number or a text such as
            ``"1GB"``. Default: ``"10GB"``.
        message: The message of the commits. The default, None, names the store.
        metadata: More metadata of the commits. Default: none.
        engine: Where tasks run: an `Engine`, or ``"inline"``, ``"threads"``, ``"processes"``, ``"spark"`` or
            ``"sail"``. The default, None, is Spark where Spark is in use, else processes of this machine
            (`default_engine`).
        progress: A `Progress`, which shows the tasks. The default, None, shows nothing.
        dry_run: Whether to change nothing, and to return the numbers of chunks and bytes.

    Returns:
        The number of chunks and bytes that were copied, and the number of chunks that the branch had, as
        `CopySummary`.

    Raises:
        InvalidInputError: The storage has no Zarr store of version 3 (``invalid-argument``), or an array has
            other chunk keys than ``default`` and ``v2`` (``unsupported-array``).
        ConflictError: The branch has a node with other metadata at one of the paths (``not-allowed``).
        TaskFailedError: A chunk cannot be read. The kind is the kind of the cause.

    Examples:
        >>> import frazil, numpy as np, zarr
        >>> from frazil.pipeline import Target, from_zarr
        >>> array = zarr.create_array("plain.zarr", name="t", data=np.arange(6), chunks=(2,))
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> storage = frazil.local_filesystem_storage("plain.zarr")
        >>> from_zarr(storage, Target(repo), engine="inline").objects
        3
        >>> frazil.read(repo.readonly_session("main"), "t").tolist()
        [0, 1, 2, 3, 4, 5]
    """
    store = read_zarr_store(source)
    label = storage_label(source)
    present = to.repo.readonly_session(to.branch)
    documents = _documents(store, present, to)
    chunks, existing = _absent_chunks(store, documents, present, to)
    total = CopySummary(
        sum(len(each.keys) for each in chunks), sum(int(each.sizes.sum()) for each in chunks), existing
    )
    if dry_run:
        return total
    resolved = engine_of(engine)
    sizes = np.concatenate([np.zeros(0, np.int64), *(each.sizes for each in chunks)])
    borders = np.cumsum([0, *(len(each.keys) for each in chunks)])
    task = task_bytes(int(sizes.sum()) + BYTES_PER_OBJECT * len(sizes), BYTES_PER_TASK, resolved)
    commits = groups(sizes, checkpoint if isinstance(checkpoint, int) else parse_bytes(checkpoint)).tolist()
    for start, stop in pairwise(commits if len(commits) > 1 else [0, 0]):
        items: list[_Chunks] = []
        for each, first in zip(chunks, borders.tolist(), strict=False):
            part = each.part(max(start - first, 0), max(stop - first, 0))
            bounds = groups(part.sizes + BYTES_PER_OBJECT, task).tolist()
            items += [part.part(*pair) for pair in pairwise(bounds)]

        def prepare(session: Session, items: Sequence[_Chunks] = items) -> Tasks:
            for path, document in documents.items():
                session.workspace.set_node(path, document)
            return Tasks(items, source)

        job = Job(
            _NAME,
            to,
            prepare,
            _copy_chunks,
            parameters={"store": label, "chunks": [start, stop], "tip": to.repo.lookup_branch(to.branch)},
            writes=tuple(documents),
            message=message or f"Copy {label}",
            metadata=metadata or {},
        )
        run_job(job, resolved, progress=progress)
    return total


def _documents(store: ZarrStore, present: Session, to: Target) -> dict[str, bytes]:
    """Return the documents of the nodes by path. Raises ``ConflictError`` for other nodes at their paths."""
    parents = to.path("").split("/")
    above = {"/".join(parents[:end]) or "/" for end in range(1, len(parents)) if to.path("") != "/"}
    documents = {path: _GROUP for path in sorted(above) if present.workspace.node(path) is None}
    for path, parsed in store.documents.items():
        at = absolute(to.path(path))
        document, node = repository_document(parsed), present.workspace.node(at)
        one, other = json.loads(_GROUP if node is None else node.user_data), json.loads(document)
        if node is not None and one != json.loads(_GROUP):
            grown = all(a <= b for a, b in zip(one.get("shape", ()), other.get("shape", ()), strict=False))
            if {**one, "shape": 0} != {**other, "shape": 0} or not grown:
                raise ConflictError(
                    message=f"the branch must have no node, or the same one, at `{at}`, got one with other "
                    f"metadata than that of the store. Copy into another group or branch",
                    kind=ErrorKind.NOT_ALLOWED,
                )
        documents[at] = document
    return documents


def _absent_chunks(
    store: ZarrStore, documents: Mapping[str, bytes], present: Session, to: Target
) -> tuple[list[_Chunks], int]:
    """Return the chunks that the branch does not have, and the number of those that it has."""
    out, existing = [], 0
    for path, parsed in store.documents.items():
        at = absolute(to.path(path))
        array = parse_node(documents[at])
        if array is None:
            continue
        keys, index = chunk_objects(path, parsed, store.listing, len(array.shape))
        sizes = np.array([store.listing.objects[key].size for key in keys], np.int64)
        inside = (index < np.array(array.num_chunks, np.int64)).all(axis=1) & (
            sizes > 0
        )  # an array may have shrunk
        coordinates = index[inside].astype(np.uint32)
        table = ChunkTable.empty(len(array.shape))
        if present.workspace.is_array(at):
            table = present.chunk_table(at)
        absent = table.find_chunks(coordinates) < 0
        existing += int((~absent).sum())
        rows = np.flatnonzero(inside)[absent]
        out.append(_Chunks(at, [keys[row] for row in rows.tolist()], coordinates[absent], sizes[rows]))
    return out, existing


def _copy_chunks(fork: ForkSession, source: Storage, item: _Chunks) -> Outcome:
    """Copy chunk objects: the task. It holds about `AT_ONCE` bytes."""
    workspace = fork.workspace
    for start, stop in pairwise(groups(item.sizes, AT_ONCE).tolist()):
        part = item.part(start, stop)
        with thread_pool(Purpose.CHUNK_COPIES) as threads:
            refs = list(threads.map(lambda key: workspace.store_bytes(source.get(key)), part.keys))
        rows: dict[Any, Any] = dict(zip(map(tuple, part.index.tolist()), refs, strict=True))
        workspace.set_refs(part.path, table_of(rows, part.index.shape[1]))
    size = int(item.sizes.sum())
    return Outcome(chunks=len(item.keys), bytes_read=size, bytes_written=size)
