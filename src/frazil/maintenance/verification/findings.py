"""The checks of a verification, and its results as values.

``checks`` is the table of all checks. A finding names its check. The names never change their meaning.

Severity is what a finding means:

    loss         bytes or metadata of a version cannot be read any more
    damage       files can be read, but contradict the specification or each other
    warning      nothing is wrong now, but something needs attention
    information  nothing is wrong
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal, cast

import numpy as np

from frazil.arguments import require_choice
from frazil.display import Record, Shown, counted
from frazil.format.columns import U32, U64

#: The level of a verification, which says how much it reads. See ``Repository.upkeep.verify``.
type VerifyLevel = Literal["metadata", "exists", "checksum", "decode"]

#: The levels of a verification. Each level includes the levels before it.
LEVELS: Final[tuple[VerifyLevel, ...]] = ("metadata", "exists", "checksum", "decode")


class Severity(StrEnum):
    """The meaning of a finding."""

    LOSS = "loss"
    DAMAGE = "damage"
    WARNING = "warning"
    INFORMATION = "information"


@dataclass(frozen=True, slots=True)
class Check:
    """A check of a verification.

    Attributes:
        name: The name, which a finding has as ``check``.
        section: The section of the specification, or the page of the documentation.
        level: The lowest level of a verification that makes the check.
        severity: The severity of a finding. A file that cannot be read any more is always a loss.
        rule: The rule that the check tests.
        action: What to do with a finding.

    Examples:
        >>> check_named("tags-sorted").section
        'Repo Info File'
    """

    name: str
    section: str
    level: VerifyLevel
    severity: Severity
    rule: str
    action: str


#: What to do, by severity, where `_BY_CHECK` has nothing more exact.
_ACTIONS: Final = {
    Severity.LOSS: "Run `frazil repair`, with `--copy` if there is a copy of the repository.",
    Severity.DAMAGE: "Run `frazil repair`, with `--copy` if there is a copy, or write the data again.",
    Severity.WARNING: "Read the detail of the finding.",
    Severity.INFORMATION: "Nothing.",
}

_BINARY: Final = "Binary File Format"
_REPO: Final = "Repo Info File"
_SNAPSHOT: Final = "Snapshot Files"
_MANIFEST: Final = "Chunk Manifest Files"
_LOG: Final = "Transaction Log Files"
_LAYOUT: Final = "File Layout"
_FRAZIL: Final = "docs/verify.md"
_AUTHORISE: Final = (
    "Open the repository with `authorize_virtual_chunk_access` for the container. For the command line, name "
    "it in the variable FRAZIL_VIRTUAL_ACCESS."
)
_REINGEST: Final = "Restore the object, or ingest it again."
_HARMLESS: Final = "Nothing. Released writers break this rule, and readers do not need it."
_LOSS: Final = Severity.LOSS
_WARNING: Final = Severity.WARNING
_INFO: Final = Severity.INFORMATION
_E: Final = "exists"
_C: Final = "checksum"
_D: Final = "decode"


#: What to do about the findings of some checks.
_BY_CHECK: Final = {
    "unavailable": "Verify again when the storage answers.",
    "log-nodes-once": _HARMLESS,
    "log-coords-sorted": _HARMLESS,
    "log-coords-rank": _HARMLESS,
    "codec-missing": "Install the package of the codec or of the data type, and verify again.",
    "virtual-unchecked": "Verify with the level `exists`, and authorise the containers.",
    "virtual-modified": _REINGEST,
    "virtual-unauthorized": _AUTHORISE,
    "virtual-unreadable": _REINGEST,
    "virtual-unavailable": "Verify again when the storage of the object answers.",
    "log-expired": "Nothing. A difference of versions over this expiration shows less than they differ in.",
    "statistics": "Run `frazil stats LOCATION@VERSION --rebuild` for the versions that have the chunks.",
    "config-file": "Save the configuration again.",
    "unreferenced": "Garbage collection deletes such files.",
}


def _row(
    name: str, section: str, rule: str, severity: Severity = Severity.DAMAGE, level: VerifyLevel = "metadata"
) -> Check:
    action = _BY_CHECK.get(name, _ACTIONS[severity])
    if level in (_C, _D):  # by default, a repair looks for less
        action = action.replace("frazil repair`", f"frazil repair --level {level}`")
    return Check(name, section, level, severity, rule, action)


#: All checks, in the order of the documentation.
checks: Final[tuple[Check, ...]] = (
    # Files of every kind.
    _row("missing", _LAYOUT, "Every file that a version needs exists (chunk files: level exists).", _LOSS),
    _row("unreadable", _BINARY, "Every file can be read and decoded.", _LOSS),
    _row("unavailable", _FRAZIL, "The storage returns every file. The others may be good.", _WARNING),
    _row("exchanged", _LAYOUT, "A file has the content that belongs to its name."),
    _row("file-header", _BINARY, "A file begins with the magic bytes and a whole header.", _LOSS),
    _row("file-spec-version", _BINARY, "The header has spec version 1 or 2, not above the repository."),
    _row("file-type", _BINARY, "The header has the type of the file."),
    _row("file-compression", _BINARY, "The header has compression 0 or 1."),
    _row("file-payload", _BINARY, "The payload is whole, and fits its checksum of zstd.", _LOSS),
    _row("text-utf8", "Common Types", "Texts are UTF-8."),
    _row("metadata-values", "Common Types", "Values of metadata are FlexBuffers (MessagePack in version 1)."),
    # The file `repo` and its backups.
    _row("repo-required", _REPO, "All required fields are present."),
    _row("repo-spec-version", _REPO, "The field spec_version is 2."),
    _row("tags-sorted", _REPO, "Tags are sorted by name, each once."),
    _row("branches-sorted", _REPO, "Branches are sorted by name, each once."),
    _row("deleted-tags-sorted", _REPO, "Deleted tags are sorted by name, each once."),
    _row("snapshots-sorted", _REPO, "Snapshots are sorted by id, each once."),
    _row("enabled-flags-sorted", _REPO, "Enabled feature flags are sorted."),
    _row("disabled-flags-sorted", _REPO, "Disabled feature flags are sorted."),
    _row("flags-exclusive", _REPO, "No feature flag is enabled and disabled."),
    _row("config-flexbuffer", _REPO, "The configuration is a map in FlexBuffers."),
    _row("status-availability", "RepoStatus", "The availability is 0, 1 or 2."),
    _row("main-branch", "References", "There is a branch `main`."),
    _row("tag-reuse", "References", "No tag has the name of a deleted tag."),
    _row("ref-target", "Ref", "Branches and tags are on listed snapshots."),
    _row("parent-offset", "SnapshotInfo", "Parents are listed snapshots, or -1."),
    _row("parent-cycle", "SnapshotInfo", "The ancestors of a snapshot end."),
    _row("initial-snapshot", "SnapshotInfo", "Only the initial snapshot has no parent."),
    _row("snapshot-summary", "SnapshotInfo", "Time, message and metadata are those of the snapshot."),
    _row("update-kind", "Update", "Updates have a kind from 1 to 16."),
    _row("ops-order", "Update", "The newest update is first, and times differ."),
    _row("ops-refs", "Update", "The updates explain the branches and tags."),
    _row("repo-latest", "Updates to the repo info file", "No backup has a later state than `repo`.", _LOSS),
    _row("backup-name", "Updates to the repo info file", "Backups have the names of the specification."),
    # Snapshots.
    _row("snapshot-required", _SNAPSHOT, "All required fields are present."),
    _row("snapshot-id", _SNAPSHOT, "The id is that in the name of the file."),
    _row("snapshot-parent-v1", _SNAPSHOT, "Version 1: all but the initial snapshot have parent_id."),
    _row("snapshot-parent-v2", _SNAPSHOT, "Version 2: parent_id is absent."),
    _row("snapshot-metadata-sorted", _SNAPSHOT, "Items of the metadata are sorted by name."),
    _row("nodes-sorted", _SNAPSHOT, "Nodes are sorted by path (by bytes or by segments), each once."),
    _row("node-path", "Node Paths", "Paths are absolute, canonical UTF-8."),
    _row("node-ids", "NodeSnapshot", "No two nodes have the same id."),
    _row("node-document", "NodeSnapshot", "The Zarr metadata are JSON and fit the kind of the node."),
    _row("array-shape-v1", "ArrayNodeData", "Version 1: shape_v2 is absent."),
    _row("array-shape-v1-empty", "ArrayNodeData", "Version 2: the list shape is empty."),
    _row("array-shape-v2", "ArrayNodeData", "Version 2: shape_v2 is present."),
    _row("array-shape", "ArrayNodeData", "The lengths are those of the Zarr metadata."),
    _row("num-chunks", "ArrayNodeData", "The numbers of chunks fit the Zarr metadata."),
    _row("dimension-names", "ArrayNodeData", "Dimension names are one per dimension, or absent."),
    _row("extents-rank", "ManifestRef", "Extents have one range per dimension."),
    _row("extents-range", "ManifestRef", "Ranges of extents do not end before they begin."),
    _row("extents-overlap", "ArrayNodeData", "The extents of the manifests of an array do not overlap."),
    _row("manifest-listed", "ManifestFileInfo", "Manifests of arrays are in the list of manifests."),
    _row("manifest-files-sorted", _SNAPSHOT, "The list of manifests is sorted by id, each once."),
    _row("manifest-files-v1-empty", _SNAPSHOT, "Version 2: manifest_files is empty."),
    _row("manifest-files-v2", _SNAPSHOT, "Version 2: manifest_files_v2 is present."),
    _row("manifest-file-fields", "ManifestFileInfo", "Id and size of a listed manifest are present."),
    # Manifests.
    _row("manifest-required", _MANIFEST, "All required fields are present."),
    _row("manifest-id", _MANIFEST, "The id is that in the name of the file."),
    _row("manifest-size", "ManifestFileInfo", "The file has the size in the snapshot."),
    _row("manifest-count", "ManifestFileInfo", "The file has as many references as in the snapshot."),
    _row("manifest-extents", "ManifestRef", "The coordinates are inside of the extents."),
    _row("arrays-sorted", _MANIFEST, "Arrays are sorted by node id, each once."),
    _row("refs-sorted", "ArrayManifest", "References are sorted by coordinates, each once."),
    _row("ref-rank", "ChunkRef", "Coordinates have one number per dimension of the array."),
    _row("ref-kind", "ChunkRef", "A reference is either inline, native or virtual."),
    _row("ref-checksum", "ChunkRef", "A virtual reference has an etag or a time, not both."),
    _row("ref-range", "ChunkRef", "Offset and length are less than 2^64 together."),
    _row("ref-location", "ChunkRef", "Locations are absolute URLs in UTF-8."),
    _row("location-compression", _MANIFEST, "The compression of locations is 0 or 1."),
    _row("location-dictionary", _MANIFEST, "Compressed locations have a dictionary."),
    # Transaction logs.
    _row("log-required", _LOG, "All required fields are present."),
    _row("log-id", _LOG, "The id is that of the snapshot."),
    _row("log-initial", _LOG, "The log of the initial snapshot is empty."),
    _row("log-ids-sorted", _LOG, "Lists of node ids are sorted, each id once."),
    _row("log-nodes-once", _LOG, "A node is in one of the lists new, deleted, updated.", _INFO),
    _row("log-chunks-sorted", _LOG, "Updated arrays are sorted by node id, each once."),
    _row("log-coords-sorted", "ArrayUpdatedChunks", "Coordinates are sorted, each once.", _INFO),
    _row("log-coords-rank", "ArrayUpdatedChunks", "Coordinates have one number per dimension.", _INFO),
    _row("log-nodes", _LOG, "The nodes of the log are those that the two snapshots differ in."),
    _row("log-expired", _FRAZIL, "The logs of expired versions are listed: icechunk 2.0 does not.", _INFO),
    _row("log-chunks", _LOG, "The log has all chunks that the manifests of the two snapshots differ in."),
    _row("move-fields", "MoveOperation", "A move has all fields."),
    _row("moves-sorted", _LOG, "Moves are sorted by target, segment by segment."),
    _row("move-identity", _LOG, "A move changes the path."),
    _row("moves-collapsed", _LOG, "A node has one move."),
    _row("moves-paths", "MoveOperation", "Moves lead from the path in the parent to that in the snapshot."),
    _row("moves-complete", _LOG, "Every node whose path changes has a move."),
    _row("moves-parent", _LOG, "The parent group of a moved node exists."),
    _row("moves-overwrite", _LOG, "A target that was occupied is the source of another move."),
    # Chunks.
    _row("short", "Chunk Files", "Chunk files have all bytes of their references.", _LOSS, _E),
    _row("checksum", _FRAZIL, "Chunks fit their recorded checksums.", _LOSS, _C),
    _row("undecodable", "Chunk Files", "The codecs decode every chunk to its shape and dtype.", _LOSS, _D),
    _row("statistics", _FRAZIL, "Statistics are those of the elements of their chunks.", Severity.DAMAGE, _D),
    _row("codec-missing", _FRAZIL, "The codecs and the data type of every array work here.", _INFO, _D),
    _row("virtual-modified", "ChunkRef", "Objects have the etag or time of their references.", _LOSS),
    _row("virtual-unauthorized", "ChunkRef", "The containers of objects are authorised.", _WARNING, _E),
    _row("virtual-unreadable", "ChunkRef", "Objects of virtual references exist and are long enough.", _LOSS),
    _row("virtual-unavailable", _FRAZIL, "Storages return all objects. Others may be good.", _WARNING, _E),
    _row("virtual-unchecked", _FRAZIL, "All objects were compared with their references.", _INFO),
    # Other files.
    _row("ref-file", "spec version 1", "Files of refs are JSON with the id of a snapshot.", _LOSS),
    _row("config-file", "spec version 1", "config.yaml is a configuration."),
    _row("file-name", _LAYOUT, "Files are named by ids in Crockford base32.", _INFO),
    _row("unreferenced", _FRAZIL, "Every file belongs to a version.", _INFO),
)

_BY_NAME: Final = {check.name: check for check in checks}


def check_named(name: str) -> Check:
    """Return the check with a name."""
    return _BY_NAME[name]


_SHOWN: Final = 20
#: The number of branches and tags of one finding that its text names.
_NAMES: Final = 5
#: Findings with these severities make a report not ok.
_BAD: Final = frozenset({Severity.LOSS, Severity.DAMAGE, Severity.WARNING})


def verify_level(level: object) -> VerifyLevel:
    """Check the level of a verification."""
    require_choice("level", level, LEVELS)
    return cast("VerifyLevel", level)


@dataclass(frozen=True, slots=True)
class AffectedArrays:
    """The arrays and versions that need a file.

    Attributes:
        arrays: The paths of the arrays. If the branches and tags have an array at different paths, addresses
            such as ``@dev:/a``. Empty for a file that all arrays of a version need.
        branches: The branches whose newest version needs the file.
        tags: The tags whose version needs the file.
        snapshots: The number of versions that need the file, those of older commits included.
    """

    arrays: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    snapshots: int = 0

    def __str__(self) -> str:
        named = (
            ("array", "arrays", self.arrays),
            ("branch", "branches", self.branches),
            ("tag", "tags", self.tags),
        )
        parts = [
            f"{one if len(names) == 1 else many} {_joined(names)}" for one, many, names in named if names
        ]
        return ", ".join([*parts, counted(self.snapshots, "snapshot")])


def _joined(names: tuple[str, ...]) -> str:
    shown = [*names[:_NAMES], *([f"{len(names) - _NAMES} more"] if len(names) > _NAMES else [])]
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """A result of a check: a file that is damaged, or something else to know.

    Attributes:
        check: The name of the check: see `checks`.
        key: The key of the object in the repository, the URL of a foreign object, or a folder.
        node: The id of the array. Empty for a file of several arrays.
        coordinates: The coordinates of the chunks, uint32 of shape (k, ndim).
        detail: A description.
        is_unreadable: Whether readers refuse the whole file.
        affected: The versions that need the file. Empty for files that are not part of a version.
        offsets: The positions of these chunks in their chunk file, uint64 of shape (k,). Empty for other
            files.

    Examples:
        >>> finding = Finding("missing", "chunks/A")
        >>> finding.severity.value, finding.action
        ('loss', 'Run `frazil repair`, with `--copy` if there is a copy of the repository.')
    """

    check: str
    key: str
    node: bytes = b""
    coordinates: U32 = field(default_factory=lambda: np.zeros((0, 0), np.uint32))
    detail: str = ""
    is_unreadable: bool = False
    affected: AffectedArrays = AffectedArrays()
    offsets: U64 = field(default_factory=lambda: np.zeros(0, np.uint64))

    @property
    def severity(self) -> Severity:
        """The severity: that of the check, and ``loss`` for a file that readers refuse."""
        return Severity.LOSS if self.is_unreadable else check_named(self.check).severity

    @property
    def action(self) -> str:
        """What to do."""
        return check_named("unreadable" if self.is_unreadable else self.check).action

    def __str__(self) -> str:
        chunks = f", {counted(len(self.coordinates), 'chunk')}" if len(self.coordinates) else ""
        return f"{self.check}: {self.key}{chunks}" + (f" ({self.detail})" if self.detail else "")


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class VerificationReport(Record, shown_as="VerificationReport"):
    """The result of a verification.

    Attributes:
        level: The level of the verification.
        snapshots: The number of checked snapshots.
        manifests: The number of checked manifests.
        references: The number of checked references.
        bytes_read: The number of bytes of chunks that were read.
        findings: All findings.
        paths: The paths of the arrays in ``findings``, by node id.
        native_chunks: The number of chunks in chunk files that were read.
        compared_chunks: The number of these chunks that have a recorded checksum.
        resumed: The number of pieces of work that an earlier run with the same state has done.

    Examples:
        >>> report = VerificationReport("metadata", 1, 0, 0, 0, (Finding("missing", "chunks/A"),), {})
        >>> report.ok, report.rows()[0]["check"], report.rows()[0]["severity"]
        (False, 'missing', 'loss')
        >>> print(report)
        <frazil.VerificationReport>
        level: metadata
        snapshots: 1
        manifests: 0
        references: 0
        bytes_read: 0
        native_chunks: 0
        compared_chunks: 0
        findings: 1
        missing: 1
        first findings: missing: chunks/A
        <BLANKLINE>
    """

    level: VerifyLevel
    snapshots: int
    manifests: int
    references: int
    bytes_read: int
    findings: tuple[Finding, ...]
    paths: Mapping[bytes, str]
    native_chunks: int = 0
    compared_chunks: int = 0
    resumed: int = 0

    @property
    def ok(self) -> bool:
        """Whether all findings have the severity ``information``."""
        return not self.problems

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings with the severities ``loss``, ``damage`` and ``warning``."""
        return tuple(each for each in self.findings if each.severity in _BAD)

    def path_of(self, finding: Finding) -> str | None:
        """Return the path of the array of a finding, in a version that it affects.

        Args:
            finding: A finding of this report.

        Returns:
            The path. None for a finding that is not about one array.

        Examples:
            >>> VerificationReport("metadata", 1, 0, 0, 0, (), {}).path_of(Finding("missing", "repo")) is None
            True
        """
        arrays = finding.affected.arrays if finding.node else ()
        return arrays[0] if len(arrays) == 1 else self.paths.get(finding.node)

    def rows(self) -> list[dict[str, Any]]:
        """Return the findings as rows, with one row for each lost chunk. pandas makes a table of them.

        Returns:
            Rows with the keys ``severity``, ``check``, ``key``, ``path``, ``coordinates``, ``detail`` and
            ``action``, and with those of `AffectedArrays`: ``arrays``, ``branches``, ``tags`` and
            ``snapshots``. A finding without chunks has one row, with None as ``coordinates``.
        """
        return [
            {
                "severity": each.severity.value,
                "check": each.check,
                "key": each.key,
                "path": self.path_of(each),
                "coordinates": coordinates,
                "detail": each.detail,
                "action": each.action,
                **{name: list(getattr(each.affected, name)) for name in ("arrays", "branches", "tags")},
                "snapshots": each.affected.snapshots,
            }
            for each in self.findings
            for coordinates in each.coordinates.tolist() or [None]
        ]

    def to_json(self) -> str:
        """Return the report as JSON: its numbers, ``ok``, and the rows as ``findings``.

        Returns:
            The text of one object.

        Examples:
            >>> import json
            >>> report = VerificationReport("metadata", 1, 0, 0, 0, (), {})
            >>> json.loads(report.to_json())["ok"]
            True
        """
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        document = {"level": self.level, "ok": self.ok, **numbers, "findings": self.rows()}
        return json.dumps(document, indent=2, ensure_ascii=False)

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        for name in ("level", *_NUMBERS[:-1]):
            yield name, str(getattr(self, name))
        if self.resumed:
            yield "resumed", str(self.resumed)
        yield "findings", str(len(self.findings))
        for check, count in sorted(Counter(each.check for each in self.findings).items()):
            yield check, str(count)
        if self.findings:
            order = list(Severity)
            worst = sorted(self.findings, key=lambda each: order.index(each.severity))
            more = [f"and {len(self.findings) - _SHOWN} more"] if len(self.findings) > _SHOWN else []
            yield "first findings", "\n".join([*map(str, worst[:_SHOWN]), *more])


_NUMBERS: Final = (
    *("snapshots", "manifests", "references", "bytes_read"),
    *("native_chunks", "compared_chunks", "resumed"),
)
