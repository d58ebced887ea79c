"""Snapshots: all arrays and groups of one version of a repository.

The nodes are columns (``NodeTable``), sorted by the bytes of their paths, as readers search for them. Old
writers sorted by path component, so the reader does not rely on the order. An upgraded repository also has
files of spec version 1: the header of each file contains its version.

    Snapshot   0 id  1 parent_id  2 nodes  3 flushed_at  4 message  5 metadata  6 manifest_files
               7 manifest_files_v2  8 extra

Specification: *Snapshot Files*.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, FormatError
from frazil.format.columns import U8, HasFields, require, structs
from frazil.format.envelope import (
    FileType,
    LateFields,
    Violation,
    collect,
    complete,
    open_envelope,
    reading,
    seal,
    unsorted,
    with_late_fields,
)
from frazil.format.flatbuffer import Buffer, Layout, Record, Tables, Writer
from frazil.format.flexbuffer import read_metadata, write_row
from frazil.format.ids import (
    INITIAL_SNAPSHOT_ID,
    OBJECT_ID_BYTES,
    id_keys,
    id_order,
    id_to_text,
    ids_among,
)
from frazil.format.nodes import ArrayData, ManifestRef, ManifestRefs, Node, NodeTable
from frazil.format.nodes_codec import node_violations, read_nodes, write_nodes
from frazil.format.snapshot_table import SnapshotEntry

_REQUIRED: Final = "snapshot-required"

_LAYOUT: Final = Layout(
    {0: f"V{OBJECT_ID_BYTES}", 2: "u4", 3: "u8", 4: "u4", 5: "u4", 6: "u4", 7: "u4"}, slots=8
)
#: The layouts of version 1: without a parent for the root, with a parent for all other snapshots.
_LAYOUTS_V1: Final = {
    has_parent: Layout(
        {0: f"V{OBJECT_ID_BYTES}"}
        | ({1: f"V{OBJECT_ID_BYTES}"} if has_parent else {})
        | {2: "u4", 3: "u8", 4: "u4", 5: "u4", 6: "u4"},
        slots=7,
    )
    for has_parent in (False, True)
}
_FILE_LAYOUT: Final = Layout({0: f"V{OBJECT_ID_BYTES}", 1: "u8", 2: "u4"}, slots=3)
#: ManifestFileInfo of version 1, which is a struct.
_FILE_STRUCT: Final = np.dtype(
    {
        "names": ["id", "size", "refs"],
        "formats": ["V12", "<u8", "<u4"],
        "offsets": [0, 16, 24],
        "itemsize": 32,
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class ManifestFiles:
    r"""The manifest files of a snapshot, m rows, sorted by id.

    Attributes:
        ids: uint8 (m, 12).
        size_bytes: uint64 (m,), the size of the whole file. Readers fetch exactly this many bytes.
        num_chunk_refs: uint32 (m,).
    """

    ids: U8
    size_bytes: NDArray[np.uint64]
    num_chunk_refs: NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.size_bytes)

    @classmethod
    def empty(cls) -> ManifestFiles:
        """Return a table without rows."""
        return cls(np.zeros((0, OBJECT_ID_BYTES), np.uint8), np.zeros(0, np.uint64), np.zeros(0, np.uint32))

    def find_manifest(self, id_: bytes) -> int:
        """Return the row of a manifest."""
        keys = id_keys(self.ids)
        row = int(np.searchsorted(keys, np.frombuffer(id_, keys.dtype)[0]))
        return row if row < len(keys) and self.ids[row].tobytes() == id_ else -1

    def size_of(self, id_: bytes) -> int:
        """Return the size of a manifest's file."""
        row = self.find_manifest(id_)
        if row < 0:
            raise FormatError(
                f"manifest {id_to_text(id_)} is not among the snapshot's manifest files",
                ErrorKind.MANIFEST_INFO_NOT_FOUND,
            )
        return int(self.size_bytes[row])

    def select_manifests(self, rows: NDArray[Any]) -> ManifestFiles:
        """Return some of the rows."""
        return ManifestFiles(self.ids[rows], self.size_bytes[rows], self.num_chunk_refs[rows])

    def part(self, start: int, stop: int) -> ManifestFiles:
        """Return some of the rows, which share the columns."""
        rows = slice(start, stop)
        return ManifestFiles(self.ids[rows], self.size_bytes[rows], self.num_chunk_refs[rows])

    def sorted(self) -> ManifestFiles:
        """Return the rows sorted by id."""
        keys = id_keys(self.ids)
        if (keys[1:] >= keys[:-1]).all():
            return self
        return self.select_manifests(id_order(self.ids))

    def distinct(self) -> ManifestFiles:
        """Return the first row of each id. The rows must be sorted."""
        keys = id_keys(self.ids)
        new = np.ones(len(keys), np.bool_)
        np.not_equal(keys[1:], keys[:-1], out=new[1:])
        return self if new.all() else self.select_manifests(np.flatnonzero(new))


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot(LateFields):
    """A snapshot file.

    Attributes:
        id: The id of the snapshot.
        flushed_at: The time of the commit, microseconds since 1970.
        message: The message of the commit.
        metadata: JSON-like values by name.
        nodes: The groups and arrays.
        manifests: The manifest files.
        parent_id: The parent snapshot, only in files of spec version 1 (None for the root). In version 2 the
            repo info contains the parents.
        spec_version: 1 or 2.
    """

    id: bytes
    flushed_at: int
    message: str
    metadata: dict[str, Any]
    nodes: NodeTable
    manifests: ManifestFiles
    parent_id: bytes | None = None
    spec_version: int = 2


def encode_snapshot(snapshot: Snapshot, *, level: int = 3) -> bytes:
    """Return the file of a snapshot in its ``spec_version``. Version 2 does not store ``parent_id``.

    >>> file = encode_snapshot(initial_snapshot(1_700_000_000_000_000))
    >>> decode_snapshot(file, "snapshots/1CECHNKREP0F1RSTCMT0").message
    'Repository initialized'
    """
    version = snapshot.spec_version
    layout = _LAYOUT if version == 2 else _LAYOUTS_V1[snapshot.parent_id is not None]
    writer = Writer()
    root = writer.table(layout)
    root.put(0, snapshot.id)
    if version == 1 and snapshot.parent_id is not None:
        root.put(1, snapshot.parent_id)
    root.put(3, snapshot.flushed_at)
    root.link(4, writer.string(snapshot.message))
    root.link(5, write_row(writer, snapshot.metadata, version))
    (_write_files_v1 if version == 1 else _write_files_v2)(writer, root, snapshot.manifests)
    root.link(2, write_nodes(writer, snapshot.nodes, version))
    return seal(writer.finish(root.position), FileType.SNAPSHOT, spec_version=version, level=level)


def _write_files_v1(writer: Writer, root: Record, unsorted: ManifestFiles) -> None:
    files = unsorted.sorted()
    rows = np.zeros(len(files), _FILE_STRUCT)
    rows["id"], rows["size"], rows["refs"] = structs(files.ids), files.size_bytes, files.num_chunk_refs
    root.link(6, writer.vector(rows, alignment=8))


def _write_files_v2(writer: Writer, root: Record, unsorted: ManifestFiles) -> None:
    root.link(6, writer.no_elements())
    if not len(unsorted):
        root.link(7, writer.no_elements())
        return
    files = unsorted.sorted()
    vector = writer.offset_vectors([len(files)])
    root.link(7, int(vector.positions[0]))
    records, places = writer.tables(_FILE_LAYOUT, len(files))
    vector.fill(places)
    records["f0"] = structs(files.ids)
    records["f1"] = files.size_bytes
    records["f2"] = files.num_chunk_refs


def decode_snapshot(data: Any, name: str, broken: list[Violation] | None = None) -> Snapshot:
    """Read a snapshot of spec version 1 or 2. Raise ``FormatError`` with ``name`` for other bytes.

    ``broken`` gets the broken rules that readers do not need.
    """
    root, snapshot = _open(data, name, broken)
    complete(snapshot.nodes)
    complete(snapshot)
    collect(broken, _violations(root, snapshot), node_violations(root, snapshot.nodes))
    return snapshot


def _violations(root: Tables, snapshot: Snapshot) -> Iterator[Violation]:
    """Yield the broken rules that readers do not need, without those of nodes."""
    version = snapshot.spec_version
    if version > 1 and root.present(1)[0]:
        yield Violation("snapshot-parent-v2", "parent_id must be absent in spec version 2")
    yield from unsorted("snapshot-metadata-sorted", "items of the metadata", list(snapshot.metadata))
    if version > 1 and len(old := root.vectors(6, f"V{_FILE_STRUCT.itemsize}").row(0)):
        yield Violation("manifest-files-v1-empty", f"manifest_files must be empty, got {len(old)} bytes")
    stored = _files(root, version)
    yield from unsorted("manifest-files-sorted", "manifest files", id_keys(stored.ids))
    if not stored.size_bytes.all():
        yield Violation("manifest-file-fields", "a manifest file must have an id and a size, got one without")
    uses = snapshot.nodes.manifest_ids()
    missing = uses[~ids_among(uses, stored.ids)]
    if len(missing):
        id_ = id_to_text(missing[0].tobytes())
        yield Violation("manifest-listed", f"the manifest {id_} of an array is not among the manifest files")


def require_fields(root: HasFields) -> None:
    """Raise ``FormatError`` if a snapshot lacks a field that all spec versions require."""
    require(root, "snapshot", _REQUIRED, id=0, nodes=2, message=4, metadata=5, manifest_files=6)


def open_snapshot(data: Any, name: str) -> Snapshot:
    """Read the nodes of a snapshot. The list of its manifests and its description are decoded when needed.

    Raises ``FormatError`` with ``name`` if the bytes are not a snapshot, or if a node is damaged. Reads of
    other damaged fields raise it later.
    """
    return _open(data, name)[1]


def _open(data: Any, name: str, broken: list[Violation] | None = None) -> tuple[Tables, Snapshot]:
    """Return the root table too."""
    with reading(name):
        header, payload = open_envelope(data, FileType.SNAPSHOT)
        root = Buffer(payload).root()
        require_fields(root)
        spec_version = header.spec_version
        nodes, _ = root.children(2)
        fields = {
            "id": root.structs(0, OBJECT_ID_BYTES).tobytes(),
            "nodes": read_nodes(nodes, spec_version, name, broken),
            "spec_version": spec_version,
        }

    def manifests() -> dict[str, Any]:
        with reading(name):
            return {"manifests": read_manifest_files(root, spec_version)}

    def description() -> dict[str, Any]:
        with reading(name):
            return {
                "flushed_at": int(root.scalars(3, "<u8")[0]),
                "message": root.vectors(4).text(0),
                "metadata": read_metadata(root, 5, name, spec_version).load(0),
                "parent_id": root.structs(1, OBJECT_ID_BYTES).tobytes() if root.present(1)[0] else None,
            }

    late = dict.fromkeys(("flushed_at", "message", "metadata", "parent_id"), description)
    return root, with_late_fields(Snapshot, fields, {"manifests": manifests, **late})


def read_manifest_files(root: Tables, spec_version: int) -> ManifestFiles:
    """Return the manifest files of a snapshot, from the root table of its file."""
    return _files(root, spec_version).sorted()


def _files(root: Tables, spec_version: int) -> ManifestFiles:
    """Return the manifest files in the order of the file."""
    if spec_version == 1:
        rows = root.numbers(6, f"V{_FILE_STRUCT.itemsize}").values.view(_FILE_STRUCT)
        ids = np.ascontiguousarray(rows["id"]).view(np.uint8).reshape(len(rows), OBJECT_ID_BYTES)
        return ManifestFiles(ids, rows["size"].astype(np.uint64), rows["refs"].astype(np.uint32))
    require(root, "snapshot", "manifest-files-v2", manifest_files_v2=7)
    files, _ = root.children(7)
    require(files, "manifest file", "manifest-file-fields", id=0)
    return ManifestFiles(files.structs(0, OBJECT_ID_BYTES), files.scalars(1, "<u8"), files.scalars(2, "<u4"))


def decode_entry(data: Any, name: str) -> SnapshotEntry:
    """Return the entry of a snapshot of spec version 1 in a repo info: all but its nodes and manifests."""
    with reading(name):
        _, payload = open_envelope(data, FileType.SNAPSHOT)
        root = Buffer(payload).root()
        require(root, "snapshot", _REQUIRED, id=0, message=4, metadata=5)
        return SnapshotEntry(
            root.structs(0, OBJECT_ID_BYTES).tobytes(),
            root.structs(1, OBJECT_ID_BYTES).tobytes() if root.present(1)[0] else None,
            int(root.scalars(3, "<u8")[0]),
            root.vectors(4).text(0),
            read_metadata(root, 5, name, spec_version=1).load(0),
        )


def initial_snapshot(flushed_at: int, spec_version: int = 2) -> Snapshot:
    """Return the first snapshot of a new repository.

    It has no nodes, the well-known id, and the metadata ``{"__icechunk": {"is_root": True}}``.
    """
    return Snapshot(
        INITIAL_SNAPSHOT_ID,
        flushed_at,
        INITIAL_MESSAGE,
        dict(INITIAL_METADATA),
        NodeTable.from_nodes([]),
        ManifestFiles.empty(),
        spec_version=spec_version,
    )


INITIAL_MESSAGE: Final = "Repository initialized"
INITIAL_METADATA: Final[dict[str, Any]] = {"__icechunk": {"is_root": True}}

__all__ = [
    "INITIAL_MESSAGE",
    "INITIAL_METADATA",
    "ArrayData",
    "ManifestFiles",
    "ManifestRef",
    "ManifestRefs",
    "Node",
    "NodeTable",
    "Snapshot",
    "decode_entry",
    "decode_snapshot",
    "encode_snapshot",
    "initial_snapshot",
    "open_snapshot",
]
