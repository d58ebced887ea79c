"""The report of an import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What ``upgrade`` imported, and what it left out.

    Attributes:
        generation: Format of the old repository, e.g. ``"M8, as written by icechunk 0.1.0 to 0.1.3"``.
        branches: Names of the branches.
        tags: Names of the tags.
        snapshots: Number of snapshots.
        arrays: Number of different arrays in all snapshots.
        groups: Number of different groups in all snapshots.
        manifests: Number of manifest files that were written.
        chunk_references: Number of references in these manifests.
        chunk_files: Number of chunk files that the references use.
        chunks_copied: Number of chunk files that this call copied.
        bytes_copied: Size of the copied chunk files in bytes.
        virtual_prefixes: URL prefixes to authorise when the repository is opened, for its virtual chunks.
        left_out: What was not imported and why, one line each.
        was_there: Whether the target already contained the complete import. Then this call wrote nothing, and
            did not count references and files.
        snapshot_ids: Old ids of snapshots -> new ids, as text.

    Examples:
        >>> print(ImportReport("M8", branches=("main",), snapshots=2).snapshots)
        2
    """

    generation: str
    branches: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    snapshots: int = 0
    arrays: int = 0
    groups: int = 0
    manifests: int = 0
    chunk_references: int = 0
    chunk_files: int = 0
    chunks_copied: int = 0
    bytes_copied: int = 0
    virtual_prefixes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    was_there: bool = False
    snapshot_ids: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        """Return a summary in a few lines."""
        lines = [
            f"imported from: {self.generation}" + (" (was there already)" if self.was_there else ""),
            f"branches: {', '.join(self.branches)}",
            f"tags: {', '.join(self.tags) or 'none'}",
            f"{self.snapshots} snapshots, {self.arrays} arrays, {self.groups} groups",
        ]
        if not self.was_there:
            lines += [
                f"{self.chunk_references} references, {self.manifests} manifests",
                f"{self.chunk_files} chunk files",
                f"copied: {self.chunks_copied} chunk files, {self.bytes_copied} bytes",
            ]
        lines += [f"virtual chunks below: {prefix}" for prefix in self.virtual_prefixes]
        lines += [f"left out: {each}" for each in self.left_out]
        return "\n".join(lines)
