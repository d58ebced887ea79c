"""Lines of ``ImportReport.left_out`` for contents of old files that the new repository cannot store.

A ref of spec version 2 has a name and a snapshot. The time of an old ref goes to the ops log, and its
properties are lost. A snapshot has one time. Numbers of parents are only reported if they contradict
the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from frazil.format.ids import id_to_text
from frazil.importing.history import ImportedVersion
from frazil.importing.source import Refs

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
