"""Repo info: the only file that changes, with refs, all snapshots, configuration, status and the ops log.

Snapshots and ops log are columns. ``open_repo_info`` decodes the parts of a file when they are read. A method
that changes something returns a new value. The module is pure: times, ids and names of backups are arguments.

    Repo   0 spec_version  1 tags  2 branches  3 deleted_tags  4 snapshots  5 status  6 metadata
           7 latest_updates  8 repo_before_updates  9 config  10 enabled_feature_flags
           11 disabled_feature_flags  12 extra
    Ref    0 name  1 snapshot_index

Specification: *Repo Info File*.

Each commit writes ``repo`` with the configuration, which has many values and rarely changes. So the last
encoded configurations stay in memory, under all their values with their types.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from typing import Any, Final

import numpy as np

from frazil.errors import ErrorKind, FormatError, InternalError, InvalidMetadataError
from frazil.format import flexbuffer
from frazil.format.columns import I64, Ragged, require, unshared
from frazil.format.envelope import (
    Decoders,
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
from frazil.format.flatbuffer import Buffer, Layout, Tables, Writer, link
from frazil.format.flexbuffer import read_metadata, write_row
from frazil.format.ids import (
    BACKUP_NAME_RULE,
    INITIAL_SNAPSHOT_ID,
    OBJECT_ID_BYTES,
    id_keys,
    id_matrix,
    match_backup_name,
)
from frazil.format.ops_log import (
    Availability,
    OpsEntry,
    OpsLog,
    Status,
    Statuses,
    UpdateKind,
    read_ops,
    read_statuses,
    write_ops,
    write_statuses,
)
from frazil.format.snapshot import INITIAL_MESSAGE, INITIAL_METADATA
from frazil.format.snapshot_table import (
    SnapshotEntry,
    Snapshots,
    SnapshotTable,
    read_snapshots,
    write_snapshots,
)

#: Before this version of ``marshal``, equal values have equal bytes, whatever other references they have.
_WITHOUT_REFERENCES: Final = 2


def encoded_config(config: dict[str, Any]) -> bytes:
    """Return a configuration as a flexbuffer."""
    try:
        return _encoded(marshal.dumps(config, _WITHOUT_REFERENCES))
    except (ValueError, InvalidMetadataError):
        # A value of another type. ``marshal`` stores arrays and numbers of numpy as bytes, which are refused.
        return flexbuffer.dumps(config)


@lru_cache(maxsize=16)
def _encoded(values: bytes) -> bytes:
    return flexbuffer.dumps(marshal.loads(values))


_SPEC_VERSION: Final = 2
_REF_LAYOUT: Final = Layout({0: "u4", 1: "u4"}, slots=2)
_REQUIRED: Final = {0: "u1", 1: "u4", 2: "u4", 3: "u4", 4: "u4", 5: "u4", 6: "u4", 7: "u4"}
#: The largest time of an update, which the file stores in 64 bits.
_LAST_TIME: Final = (1 << 64) - 1
_BEFORE, _CONFIG, _ENABLED, _DISABLED, _EXTRA = 8, 9, 10, 11, 12


@dataclass(frozen=True, slots=True, eq=False)
class RepoInfo(LateFields):
    """A repo info file (spec version 2), or its equivalent in a repository of version 1.

    Attributes:
        spec_version: 1 or 2.
        branches: The id of the snapshot of each branch.
        tags: The id of the snapshot of each tag.
        deleted_tags: Names that are never used again.
        snapshots: All snapshots.
        status: Whether the repository accepts changes.
        metadata: JSON-like values by name.
        ops: The newest entries of the ops log.
        repo_before_updates: The backup that contains the next older entry of the ops log.
        config: The configuration, decoded from FlexBuffers; None if there is none.
        enabled_flags: The ids of feature flags that the owner has turned on.
        disabled_flags: The ids of feature flags that the owner has turned off.
        extra: Bytes of later versions of the format, stored unchanged; None if there are none.
    """

    spec_version: int
    branches: Mapping[str, bytes]
    tags: Mapping[str, bytes]
    deleted_tags: Set[str]
    snapshots: Snapshots
    status: Status
    metadata: dict[str, Any]
    ops: OpsLog
    repo_before_updates: str | None = None
    config: dict[str, Any] | None = None
    enabled_flags: frozenset[int] = field(default_factory=frozenset)
    disabled_flags: frozenset[int] = field(default_factory=frozenset)
    extra: bytes | None = None

    @property
    def table(self) -> SnapshotTable:
        """All snapshots, for upkeep. Raises ``InternalError`` if not all of them are known."""
        if not isinstance(self.snapshots, SnapshotTable):
            raise InternalError("only some snapshots are known here. `Context.whole` reads all snapshots")
        return self.snapshots

    def recorded(self, entry: OpsEntry, *, backup: str, keep: int) -> RepoInfo:
        """Return the repo info with one more entry of the ops log.

        The previous newest entry gets ``backup`` as its backup_path (the backup contains the state right
        after that entry). Of the older entries the ``keep`` newest stay. ``repo_before_updates`` then names
        the backup whose newest entry is the first dropped entry. Entries that a migration reconstructed have
        no backup: the log is never cut before such an entry, and has more than ``keep`` entries until it can
        be cut elsewhere.
        """
        if keep < 1:
            raise InternalError(f"an ops log must keep at least 1 entry, got {keep}")
        last = int(self.ops.updated_at[0]) if len(self.ops) else -1
        if entry.updated_at <= last:
            raise InternalError(f"update at {entry.updated_at}, expected later than the last one at {last}")
        if entry.updated_at > _LAST_TIME:
            raise FormatError(
                f"repo: an update must be at most at {_LAST_TIME} us since 1970, got one at {last}"
            )
        ops = self.ops.pushed(entry, backup)
        return replace(self, ops=ops).with_short_log(keep)

    def with_short_log(self, keep: int) -> RepoInfo:
        """Return the repo info with only the ``keep`` newest entries of the ops log, if there are more.

        ``repo_before_updates`` leads to the other entries. See ``recorded``.
        """
        cuts = np.flatnonzero(self.ops.backups.lengths[keep:])
        if not len(cuts):
            return self
        length = keep + int(cuts[0])
        return replace(
            self, ops=self.ops.newest(length), repo_before_updates=self.ops.entry(length).backup_path
        )


def new_repo_info(
    now: int, config: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None
) -> RepoInfo:
    """Return the repo info of a new repository: ``main`` on the initial snapshot, one entry in the ops log.

    ``now`` (microseconds) is the ``flushed_at`` of the initial snapshot. The entry is one microsecond later,
    because updates are later than the snapshots that they describe.
    """
    first = SnapshotEntry(INITIAL_SNAPSHOT_ID, None, now, INITIAL_MESSAGE, dict(INITIAL_METADATA))
    return RepoInfo(
        _SPEC_VERSION,
        {"main": INITIAL_SNAPSHOT_ID},
        {},
        frozenset(),
        SnapshotTable.of([first]),
        Status(Availability.ONLINE, now),
        dict(metadata or {}),
        OpsLog.of([OpsEntry(UpdateKind.REPO_INITIALIZED, now + 1)]),
        config=config,
    )


def encode_repo_info(info: RepoInfo, *, level: int = 3) -> bytes:
    """Return the file. Raise ``InternalError`` if a branch or tag is on a snapshot that is not listed."""
    snapshots = info.table
    optional = {
        _BEFORE: info.repo_before_updates is not None,
        _CONFIG: info.config is not None,
        _ENABLED: bool(info.enabled_flags),
        _DISABLED: bool(info.disabled_flags),
        _EXTRA: info.extra is not None,
    }
    stored = [slot for slot, is_set in optional.items() if is_set]
    layout = _root_layout(tuple(stored))
    writer = Writer()
    root = writer.table(layout)
    root.put(0, _SPEC_VERSION)
    root.link(1, _write_refs(writer, info.tags, snapshots))
    root.link(2, _write_refs(writer, info.branches, snapshots))
    root.link(3, _write_names(writer, sorted(info.deleted_tags)))
    root.link(4, write_snapshots(writer, snapshots))
    root.link(5, int(write_statuses(writer, Statuses.of([info.status]))[0]))
    root.link(6, write_row(writer, info.metadata))
    root.link(7, write_ops(writer, info.ops))
    if info.repo_before_updates is not None:
        root.link(_BEFORE, writer.string(info.repo_before_updates))
    if info.config is not None:
        root.link(_CONFIG, writer.bytes_vector(encoded_config(info.config)))
    for slot, flags in ((_ENABLED, info.enabled_flags), (_DISABLED, info.disabled_flags)):
        if flags:
            root.link(slot, writer.vector(_flag_column(flags)))
    if info.extra is not None:
        root.link(_EXTRA, writer.bytes_vector(info.extra))
    return seal(writer.finish(root.position), FileType.REPO_INFO, level=level)


@cache
def _root_layout(optional: tuple[int, ...]) -> Layout:
    """Return the layout of the root table with these optional slots."""
    return Layout(_REQUIRED | dict.fromkeys(optional, "u4"), slots=max([7, *optional]) + 1)


def _write_refs(writer: Writer, refs: Mapping[str, bytes], snapshots: SnapshotTable) -> int:
    if not refs:
        return writer.no_elements()
    names = sorted(refs)
    rows = snapshots.find_snapshots(id_matrix([refs[name] for name in names]))
    if (rows < 0).any():
        name = names[int(np.argmin(rows))]
        raise InternalError(f"`{name}` is on a snapshot that is not listed", ErrorKind.SNAPSHOT_NOT_FOUND)
    vector = writer.offset_vectors([len(names)])
    records, places = writer.tables(_REF_LAYOUT, len(names))
    vector.fill(places)
    records["f1"] = rows
    link(records, _REF_LAYOUT, 0, places, writer.strings(Ragged.of_text(names)))
    return int(vector.positions[0])


def _write_names(writer: Writer, names: Sequence[str]) -> int:
    if not names:
        return writer.no_elements()
    vector = writer.offset_vectors([len(names)])
    vector.fill(writer.strings(Ragged.of_text(names)))
    return int(vector.positions[0])


def _flag_column(flags: Set[int]) -> Any:
    return np.array(sorted(flags), "<u2")


def decode_repo_info(data: Any, name: str, broken: list[Violation] | None = None) -> RepoInfo:
    """Read a repo info of spec version 2. Raise ``FormatError`` with ``name`` for other bytes.

    ``broken`` gets the broken rules that readers do not need.
    """
    root, info = _open(data, name)
    complete(info)
    collect(broken, _violations(root, info))
    return info


def _violations(root: Tables, info: RepoInfo) -> Iterator[Violation]:
    """Yield the broken rules that readers do not need."""
    deleted = root.string_vectors(3)[0].texts()
    yield from unsorted("tags-sorted", "tags", list(info.tags))
    yield from unsorted("branches-sorted", "branches", list(info.branches))
    yield from unsorted("deleted-tags-sorted", "deleted tags", deleted)
    ids = root.children(4)[0].structs(0, OBJECT_ID_BYTES)
    yield from unsorted("snapshots-sorted", "snapshots", id_keys(ids))
    if "main" not in info.branches:
        yield Violation("main-branch", "a repository must have the branch `main`")
    for name in sorted(info.tags.keys() & info.deleted_tags):
        yield Violation("tag-reuse", f"the tag {name!r} has the name of a deleted tag")
    flags = [root.numbers(slot, "<u2").values for slot in (_ENABLED, _DISABLED)]
    yield from unsorted("enabled-flags-sorted", "ids of enabled flags", flags[0])
    yield from unsorted("disabled-flags-sorted", "ids of disabled flags", flags[1])
    if both := sorted(info.enabled_flags & info.disabled_flags):
        yield Violation("flags-exclusive", f"feature flags must be enabled or disabled, got both for {both}")
    yield from info.table.violations()
    yield from info.ops.violations()
    if info.repo_before_updates and match_backup_name(info.repo_before_updates) is None:
        yield Violation("backup-name", f"{BACKUP_NAME_RULE}, got {info.repo_before_updates!r}")


def open_repo_info(data: Any, name: str) -> RepoInfo:
    """Return a repo info of spec version 2 whose fields are decoded when they are read.

    Raises ``FormatError`` with ``name`` if the file has another type or version, is cut off, or has no valid
    configuration. Reads of other damaged fields raise it later.
    """
    return _open(data, name)[1]


def _open(data: Any, name: str) -> tuple[Tables, RepoInfo]:
    """Return the root table too."""
    with reading(name):
        header, payload = open_envelope(data, FileType.REPO_INFO)
        root = Buffer(payload).root()
        slots = {
            "tags": 1,
            "branches": 2,
            "deleted_tags": 3,
            "snapshots": 4,
            "status": 5,
            "latest_updates": 7,
        }
        require(root, "repo info", "repo-required", **slots)
        versions = (header.spec_version, int(root.scalars(0, np.uint8)[0]))
        if versions != (_SPEC_VERSION, _SPEC_VERSION):
            raise FormatError(
                f"spec versions {versions} in header and file, expected {_SPEC_VERSION}",
                ErrorKind.UNSUPPORTED_SPEC_VERSION,
                "repo-spec-version",
            )
        fields = {"spec_version": _SPEC_VERSION, "config": _read_config(root)}
        return root, with_late_fields(RepoInfo, fields, _decoders(root, name))


def _decoders(root: Tables, name: str) -> Decoders:
    """Return the functions that decode the fields of the root table."""

    def decode(read: Callable[[Tables, str], dict[str, Any]]) -> dict[str, Any]:
        with reading(name):
            return read(root, name)

    return {field: partial(decode, read) for fields, read in _GROUPS.items() for field in fields}


def _read_versions(root: Tables, name: str) -> dict[str, Any]:
    infos, _ = root.children(4)
    snapshots, number = read_snapshots(infos, name)
    return {
        "snapshots": snapshots,
        "branches": _read_refs(root, 2, snapshots, number),
        "tags": _read_refs(root, 1, snapshots, number),
    }


def _read_properties(root: Tables, name: str) -> dict[str, Any]:
    statuses, _ = root.tables(5)
    deleted, _ = root.string_vectors(3)
    return {
        "deleted_tags": frozenset(unshared(deleted, "deleted tags").texts()),
        "status": read_statuses(statuses).status(0),
        "metadata": read_metadata(root, 6, name).load(0),
        "enabled_flags": frozenset(root.numbers(_ENABLED, "<u2").values.tolist()),
        "disabled_flags": frozenset(root.numbers(_DISABLED, "<u2").values.tolist()),
        "extra": root.vectors(_EXTRA).bytes(0) if root.present(_EXTRA)[0] else None,
    }


def _read_operations(root: Tables, name: str) -> dict[str, Any]:
    updates, _ = root.children(7)
    before = root.vectors(_BEFORE).text(0) if root.present(_BEFORE)[0] else None
    return {"ops": read_ops(updates, name), "repo_before_updates": before}


#: The fields that are decoded together, with the function that decodes them.
_GROUPS: Final[dict[tuple[str, ...], Callable[[Tables, str], dict[str, Any]]]] = {
    ("snapshots", "branches", "tags"): _read_versions,
    ("deleted_tags", "status", "metadata", "enabled_flags", "disabled_flags", "extra"): _read_properties,
    ("ops", "repo_before_updates"): _read_operations,
}


def _read_refs(root: Tables, slot: int, snapshots: SnapshotTable, number: I64) -> dict[str, bytes]:
    refs, _ = root.children(slot)
    if not len(refs):
        return {}
    require(refs, "ref", "repo-required", name=0)
    indices = refs.scalars(1, "<u4")
    if (indices >= len(snapshots)).any():
        text = f"a ref is on snapshot {int(indices.max())} of {len(snapshots)}"
        raise FormatError(text, check="ref-target")
    names = unshared(refs.vectors(0), "names of refs").texts()
    out = dict(zip(names, map(snapshots.id_of, number[indices].tolist()), strict=True))
    if len(out) != len(names):
        raise FormatError("two refs have the same name", check=("", "tags-sorted", "branches-sorted")[slot])
    return out


def _read_config(root: Tables) -> dict[str, Any] | None:
    if not root.present(_CONFIG)[0]:
        return None
    with reading("config", check="config-flexbuffer"):
        config = flexbuffer.loads(root.vectors(_CONFIG).bytes(0))
        if not isinstance(config, dict):
            raise FormatError(f"the configuration must be a map, got {type(config).__name__}")
    return config


__all__ = [
    "Availability",
    "OpsEntry",
    "OpsLog",
    "RepoInfo",
    "SnapshotEntry",
    "SnapshotTable",
    "Snapshots",
    "Status",
    "UpdateKind",
    "decode_repo_info",
    "encode_repo_info",
    "new_repo_info",
    "open_repo_info",
]
