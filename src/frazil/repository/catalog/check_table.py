"""The table of the checks of a verification. ``checks`` makes values of its rows."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple


class Row(NamedTuple):
    """A row of the table. An empty ``action`` is the usual action for the severity."""

    name: str
    section: str
    level: Literal["metadata", "exists", "checksum", "decode"]
    severity: str
    rule: str
    action: str = ""


_BINARY: Final = "Binary File Format"
_REPO: Final = "Repo Info File"
_SNAPSHOT: Final = "Snapshot Files"
_MANIFEST: Final = "Chunk Manifest Files"
_LOG: Final = "Transaction Log Files"
_LAYOUT: Final = "File Layout"
_FRAZIL: Final = "docs/verify.md"

_M: Final = "metadata"
_E: Final = "exists"
_C: Final = "checksum"

_DAMAGE: Final = "damage"
_LOSS: Final = "loss"
_WARNING: Final = "warning"
_INFORMATION: Final = "information"

_AUTHORISE: Final = "Open the repository with `authorize_virtual_chunk_access` for the container."
_REINGEST: Final = "Restore the object, or ingest it again."
_HARMLESS: Final = "Nothing. Released writers break this rule, and readers do not need it."

#: Files of every kind.
_FILES: Final = (
    Row("missing", _LAYOUT, _M, _LOSS, "Every file that a version needs exists (chunk files: level exists)."),
    Row("unreadable", _BINARY, _M, _LOSS, "Every file can be read and decoded."),
    Row(
        "unavailable",
        _FRAZIL,
        _M,
        _WARNING,
        "The storage returns every file. A file that it does not return may be good.",
        "Verify again when the storage answers.",
    ),
    Row("exchanged", _LAYOUT, _M, _DAMAGE, "A file has the content that belongs to its name."),
    Row("file-header", _BINARY, _M, _LOSS, "A file begins with the magic bytes and a whole header."),
    Row(
        "file-spec-version",
        _BINARY,
        _M,
        _DAMAGE,
        "The header has spec version 1 or 2, not above the repository.",
    ),
    Row("file-type", _BINARY, _M, _DAMAGE, "The header has the type of the file."),
    Row("file-compression", _BINARY, _M, _DAMAGE, "The header has compression 0 or 1."),
    Row("file-payload", _BINARY, _M, _LOSS, "The payload is whole, and fits its checksum of zstd."),
    Row("text-utf8", "Common Types", _M, _DAMAGE, "Texts are UTF-8."),
    Row(
        "metadata-values",
        "Common Types",
        _M,
        _DAMAGE,
        "Values of metadata are FlexBuffers (MessagePack in version 1).",
    ),
)

#: The file `repo` and its backups.
_REPO_INFO: Final = (
    Row("repo-required", _REPO, _M, _DAMAGE, "All required fields are present."),
    Row("repo-spec-version", _REPO, _M, _DAMAGE, "The field spec_version is 2."),
    Row("tags-sorted", _REPO, _M, _DAMAGE, "Tags are sorted by name, each once."),
    Row("branches-sorted", _REPO, _M, _DAMAGE, "Branches are sorted by name, each once."),
    Row("deleted-tags-sorted", _REPO, _M, _DAMAGE, "Deleted tags are sorted by name, each once."),
    Row("snapshots-sorted", _REPO, _M, _DAMAGE, "Snapshots are sorted by id, each once."),
    Row("enabled-flags-sorted", _REPO, _M, _DAMAGE, "Enabled feature flags are sorted."),
    Row("disabled-flags-sorted", _REPO, _M, _DAMAGE, "Disabled feature flags are sorted."),
    Row("flags-exclusive", _REPO, _M, _DAMAGE, "No feature flag is enabled and disabled."),
    Row("config-flexbuffer", _REPO, _M, _DAMAGE, "The configuration is a map in FlexBuffers."),
    Row("status-availability", "RepoStatus", _M, _DAMAGE, "The availability is 0, 1 or 2."),
    Row("main-branch", "References", _M, _DAMAGE, "There is a branch `main`."),
    Row("tag-reuse", "References", _M, _DAMAGE, "No tag has the name of a deleted tag."),
    Row("ref-target", "Ref", _M, _DAMAGE, "Branches and tags are on listed snapshots."),
    Row("parent-offset", "SnapshotInfo", _M, _DAMAGE, "Parents are listed snapshots, or -1."),
    Row("parent-cycle", "SnapshotInfo", _M, _DAMAGE, "The ancestors of a snapshot end."),
    Row("initial-snapshot", "SnapshotInfo", _M, _DAMAGE, "Only the initial snapshot has no parent."),
    Row(
        "snapshot-summary",
        "SnapshotInfo",
        _M,
        _DAMAGE,
        "Time, message and metadata are those of the snapshot.",
    ),
    Row("update-kind", "Update", _M, _DAMAGE, "Updates have a kind from 1 to 16."),
    Row("ops-order", "Update", _M, _DAMAGE, "The newest update is first, and times differ."),
    Row("ops-refs", "Update", _M, _DAMAGE, "The updates explain the branches and tags."),
    Row(
        "backup-name",
        "Updates to the repo info file",
        _M,
        _DAMAGE,
        "Names of backups have the form of the specification.",
    ),
)

_SNAPSHOTS: Final = (
    Row("snapshot-required", _SNAPSHOT, _M, _DAMAGE, "All required fields are present."),
    Row("snapshot-id", _SNAPSHOT, _M, _DAMAGE, "The id is that in the name of the file."),
    Row(
        "snapshot-parent-v1",
        _SNAPSHOT,
        _M,
        _DAMAGE,
        "Version 1: all but the initial snapshot have parent_id.",
    ),
    Row("snapshot-parent-v2", _SNAPSHOT, _M, _DAMAGE, "Version 2: parent_id is absent."),
    Row("snapshot-metadata-sorted", _SNAPSHOT, _M, _DAMAGE, "Items of the metadata are sorted by name."),
    Row(
        "nodes-sorted",
        _SNAPSHOT,
        _M,
        _DAMAGE,
        "Nodes are sorted by path (by bytes or by segments), each once.",
    ),
    Row("node-path", "Node Paths", _M, _DAMAGE, "Paths are absolute, canonical UTF-8."),
    Row("node-ids", "NodeSnapshot", _M, _DAMAGE, "No two nodes have the same id."),
    Row(
        "node-document",
        "NodeSnapshot",
        _M,
        _DAMAGE,
        "The Zarr metadata are JSON and fit the kind of the node.",
    ),
    Row("array-shape-v1", "ArrayNodeData", _M, _DAMAGE, "Version 1: shape_v2 is absent."),
    Row("array-shape-v1-empty", "ArrayNodeData", _M, _DAMAGE, "Version 2: the list shape is empty."),
    Row("array-shape-v2", "ArrayNodeData", _M, _DAMAGE, "Version 2: shape_v2 is present."),
    Row("array-shape", "ArrayNodeData", _M, _DAMAGE, "The lengths are those of the Zarr metadata."),
    Row("num-chunks", "ArrayNodeData", _M, _DAMAGE, "The numbers of chunks fit the Zarr metadata."),
    Row("dimension-names", "ArrayNodeData", _M, _DAMAGE, "Dimension names are one per dimension, or absent."),
    Row("extents-rank", "ManifestRef", _M, _DAMAGE, "Extents have one range per dimension."),
    Row("extents-range", "ManifestRef", _M, _DAMAGE, "Ranges of extents do not end before they begin."),
    Row(
        "extents-overlap",
        "ArrayNodeData",
        _M,
        _DAMAGE,
        "The extents of the manifests of an array do not overlap.",
    ),
    Row(
        "manifest-listed",
        "ManifestFileInfo",
        _M,
        _DAMAGE,
        "Manifests of arrays are in the list of manifests.",
    ),
    Row("manifest-files-sorted", _SNAPSHOT, _M, _DAMAGE, "The list of manifests is sorted by id, each once."),
    Row("manifest-files-v1-empty", _SNAPSHOT, _M, _DAMAGE, "Version 2: manifest_files is empty."),
    Row("manifest-files-v2", _SNAPSHOT, _M, _DAMAGE, "Version 2: manifest_files_v2 is present."),
    Row(
        "manifest-file-fields",
        "ManifestFileInfo",
        _M,
        _DAMAGE,
        "Id and size of a listed manifest are present.",
    ),
)

_MANIFESTS: Final = (
    Row("manifest-required", _MANIFEST, _M, _DAMAGE, "All required fields are present."),
    Row("manifest-id", _MANIFEST, _M, _DAMAGE, "The id is that in the name of the file."),
    Row("manifest-size", "ManifestFileInfo", _M, _DAMAGE, "The file has the size in the snapshot."),
    Row(
        "manifest-count",
        "ManifestFileInfo",
        _M,
        _DAMAGE,
        "The file has as many references as in the snapshot.",
    ),
    Row("manifest-extents", "ManifestRef", _M, _DAMAGE, "The coordinates are inside of the extents."),
    Row("arrays-sorted", _MANIFEST, _M, _DAMAGE, "Arrays are sorted by node id, each once."),
    Row("refs-sorted", "ArrayManifest", _M, _DAMAGE, "References are sorted by coordinates, each once."),
    Row("ref-rank", "ChunkRef", _M, _DAMAGE, "Coordinates have one number per dimension of the array."),
    Row("ref-kind", "ChunkRef", _M, _DAMAGE, "A reference is either inline, native or virtual."),
    Row("ref-checksum", "ChunkRef", _M, _DAMAGE, "A virtual reference has an etag or a time, not both."),
    Row("ref-range", "ChunkRef", _M, _DAMAGE, "Offset and length are less than 2^64 together."),
    Row("ref-location", "ChunkRef", _M, _DAMAGE, "Locations are absolute URLs in UTF-8."),
    Row("location-compression", _MANIFEST, _M, _DAMAGE, "The compression of locations is 0 or 1."),
    Row("location-dictionary", _MANIFEST, _M, _DAMAGE, "Compressed locations have a dictionary."),
)

_LOGS: Final = (
    Row("log-required", _LOG, _M, _DAMAGE, "All required fields are present."),
    Row("log-id", _LOG, _M, _DAMAGE, "The id is that of the snapshot."),
    Row("log-initial", _LOG, _M, _DAMAGE, "The log of the initial snapshot is empty."),
    Row("log-ids-sorted", _LOG, _M, _DAMAGE, "Lists of node ids are sorted, each id once."),
    Row(
        "log-nodes-once",
        _LOG,
        _M,
        _INFORMATION,
        "A node is in one of the lists new, deleted, updated.",
        _HARMLESS,
    ),
    Row("log-chunks-sorted", _LOG, _M, _DAMAGE, "Updated arrays are sorted by node id, each once."),
    Row(
        "log-coords-sorted",
        "ArrayUpdatedChunks",
        _M,
        _INFORMATION,
        "Coordinates are sorted, each once.",
        _HARMLESS,
    ),
    Row("log-coords-rank", "ArrayUpdatedChunks", _M, _DAMAGE, "Coordinates have one number per dimension."),
    Row("log-nodes", _LOG, _M, _DAMAGE, "The nodes of the log are those that the two snapshots differ in."),
    Row(
        "log-chunks",
        _LOG,
        _M,
        _DAMAGE,
        "The log has all chunks that the manifests of the two snapshots differ in.",
    ),
    Row("move-fields", "MoveOperation", _M, _DAMAGE, "A move has all fields."),
    Row("moves-sorted", _LOG, _M, _DAMAGE, "Moves are sorted by target, segment by segment."),
    Row("move-identity", _LOG, _M, _DAMAGE, "A move changes the path."),
    Row("moves-collapsed", _LOG, _M, _DAMAGE, "A node has one move."),
    Row(
        "moves-paths",
        "MoveOperation",
        _M,
        _DAMAGE,
        "Moves lead from the path in the parent to that in the snapshot.",
    ),
    Row("moves-complete", _LOG, _M, _DAMAGE, "Every node whose path changes has a move."),
    Row("moves-parent", _LOG, _M, _DAMAGE, "The parent group of a moved node exists."),
    Row("moves-overwrite", _LOG, _M, _DAMAGE, "A target that was occupied is the source of another move."),
)

_CHUNKS: Final = (
    Row("short", "Chunk Files", _E, _LOSS, "Chunk files have all bytes of their references."),
    Row("checksum", "docs/verify.md", _C, _LOSS, "Chunks fit their recorded checksums."),
    Row(
        "undecodable", "Chunk Files", "decode", _LOSS, "The codecs decode every chunk to its shape and dtype."
    ),
    Row(
        "codec-missing",
        _FRAZIL,
        "decode",
        _WARNING,
        "The packages of all codecs are installed.",
        "Install the extra that the detail names.",
    ),
    Row(
        "virtual-modified",
        "ChunkRef",
        _E,
        _LOSS,
        "Objects have the etag or time of their references.",
        _REINGEST,
    ),
    Row(
        "virtual-unauthorized",
        "ChunkRef",
        _E,
        _WARNING,
        "Containers of virtual references are authorised.",
        _AUTHORISE,
    ),
    Row(
        "virtual-unreadable",
        "ChunkRef",
        _E,
        _LOSS,
        "Objects of virtual references exist and are long enough.",
        _REINGEST,
    ),
    Row(
        "virtual-unavailable",
        _FRAZIL,
        _E,
        _WARNING,
        "Objects of virtual references could be read. An object that could not be read may be good.",
        "Verify again when the storage of the object answers.",
    ),
)

_OTHERS: Final = (
    Row("ref-file", "spec version 1", _M, _LOSS, "Files of refs are JSON with the id of a snapshot."),
    Row(
        "config-file",
        "spec version 1",
        _M,
        _DAMAGE,
        "config.yaml is a configuration.",
        "Save the configuration again.",
    ),
    Row("file-name", _LAYOUT, _M, _INFORMATION, "Files are named by ids in Crockford base32."),
    Row(
        "unreferenced",
        _FRAZIL,
        _M,
        _INFORMATION,
        "Every file belongs to a version.",
        "Garbage collection deletes such files.",
    ),
    Row("lease", "docs/administration.md", _M, _INFORMATION, "Leases protect files of sessions and jobs."),
    Row(
        "lease-unreadable",
        "docs/administration.md",
        _M,
        _WARNING,
        "Leases can be read.",
        "Delete the lease when its session has ended.",
    ),
    Row(
        "collection-running",
        "docs/administration.md",
        _M,
        _INFORMATION,
        "Garbage collections that run are recorded.",
    ),
    Row(
        "collection-killed",
        "docs/administration.md",
        _M,
        _WARNING,
        "Garbage collections end.",
        "Run garbage collection again.",
    ),
    Row(
        "job-staged",
        "docs/jobs.md",
        _M,
        _INFORMATION,
        "Staged files of jobs wait for their commit.",
        "Resume the job, or end it.",
    ),
    Row(
        "job-abandoned",
        "docs/jobs.md",
        _M,
        _INFORMATION,
        "Staged files belong to a job with a lease.",
        "Garbage collection deletes such files.",
    ),
)

TABLE: Final = (*_FILES, *_REPO_INFO, *_SNAPSHOTS, *_MANIFESTS, *_LOGS, *_CHUNKS, *_OTHERS)
