"""What an import did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What ``upgrade`` imported, and what it left out.

    generation        what the repository was, e.g. ``"M8, as written by icechunk 0.1.0 to 0.1.3"``
    branches, tags    names
    snapshots         number of them; ``snapshot_ids`` maps the old ids to the new ones, as text
    arrays, groups    number of different ones, in all snapshots
    manifests         number of manifest files written
    chunk_references  number of references in them
    chunk_files       number of chunk files that these refer to; of these were copied now:
    chunks_copied, bytes_copied
    virtual_prefixes  URL prefixes to authorise when the repository is opened, to read its virtual chunks
    left_out          what was not imported, and why, one line each
    was_there         the target held the finished import already: nothing was written, and references and
                      files were not counted
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
        """A few lines for people."""
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
