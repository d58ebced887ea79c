"""The report of an import, with what the new repository cannot store.

A ref of spec version 2 has a name and a snapshot. The time of an old ref goes to the ops log, and its
properties are lost. A snapshot has one time. Numbers of parents are only reported if they contradict
the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from frazil.format.ids import id_to_text
from frazil.importing.source import ImportedVersion, Refs


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


_SHOWN: Final = 200
#: Field of a snapshot file -> why it is not imported.
_REASONS: Final = {
    "started_at": "a snapshot of spec version 2 has one time, and written_at is imported",
    "total_parents": "it is not the number of ancestors that are imported",
    "short_term_parents": "it is not the length of short_term_history",
    "format_flags": "their meaning was never defined",
    "attribute_files": "their kind was never defined",
}


def of_refs(refs: Refs) -> Iterator[str]:
    """Yield one line for each branch and tag with properties."""
    for name, sequence in sorted(refs.branches.items()):
        properties = [dict(ref.properties) for ref in sequence if ref.properties]
        if properties:
            yield (
                f"properties in {len(properties)} of {len(sequence)} ref files of branch {name}, the last "
                f"are {properties[-1]!r:.{_SHOWN}}: branches of spec version 2 have none"
            )
    for name, ref in sorted(refs.tags.items()):
        if ref.properties:
            text = f"{dict(ref.properties)!r:.{_SHOWN}}"
            yield f"properties of tag {name}, {text}: tags of spec version 2 have none"


def of_snapshots(versions: Mapping[bytes, ImportedVersion]) -> Iterator[str]:
    """Yield lines for attributes in separate files, and one line for each lost field.

    Parents must come before their children.
    """
    ancestors: dict[bytes, int] = {}
    by_field: dict[str, list[bytes]] = {name: [] for name in _REASONS}
    for id_, version in versions.items():
        summary, parent = version.summary, version.old_parent
        for path in summary.without_attributes:
            yield (
                f"attributes of {path} in snapshot {id_to_text(id_)}: "
                "they are in a file whose kind was never defined"
            )
        ancestors[id_] = 0 if parent is None else ancestors[parent] + 1
        for name in summary.unplaced:
            by_field[name].append(id_)
        if summary.total_parents not in (None, ancestors[id_]):
            by_field["total_parents"].append(id_)
    for name, ids in by_field.items():
        if ids:
            yield f"{name} of {_counted(ids, 'snapshot')}: {_REASONS[name]}"


def of_manifests(flagged: Iterable[bytes]) -> Iterator[str]:
    """Yield a line for format flags of manifest files, by the ids of the files."""
    ids = list(flagged)
    if ids:
        yield f"format_flags of {_counted(ids, 'manifest')}: {_REASONS['format_flags']}"


def _counted(ids: list[bytes], kind: str) -> str:
    first = f"{kind} {id_to_text(ids[0])}"
    return first if len(ids) == 1 else f"{first} and {len(ids) - 1} more"
