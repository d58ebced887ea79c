"""The detection of repositories in a format older than spec version 1, by the names of their refs.

Such a repository cannot be opened, only imported (``frazil.upgrade``). The error of an open says so.
"""

from __future__ import annotations

from contextlib import suppress

from frazil.errors import ErrorKind, FormatError, StorageError
from frazil.format.ids import id_to_text
from frazil.format.keys import CONFIG
from frazil.format.older.generations import LAYOUTS, Evidence, Generation, Layout, described, generations_of
from frazil.format.older.refs import decode_ref, ref_files, sequence_number
from frazil.format.older.snapshot import evidence
from frazil.remedies import call
from frazil.storage.base import Storage


def older_layout(storage: Storage) -> Layout | None:
    """Return the layout of the older repository in ``storage``.

    None means that there is no such repository, or that the storage cannot list objects. The function only
    lists the refs of ``main``, which every repository has.
    """
    for layout in LAYOUTS:
        with suppress(StorageError):
            for info in storage.list(layout.probe):
                name = info.key.rpartition("/")[2]
                if name.endswith(".json") and sequence_number(name.removesuffix(".json")) is not None:
                    return layout
    return None


def generations(storage: Storage, layout: Layout) -> tuple[Generation, ...]:
    """Return the possible format generations of the repository, from its newest snapshot on ``main``."""
    seen: Evidence | None = None
    with suppress(StorageError, FormatError):
        refs = ref_files([info.key for info in storage.list(layout.probe)], layout).branches["main"]
        newest = refs[max(refs)]
        stem = f"{layout.snapshots}/{id_to_text(decode_ref(storage.get(newest), newest).snapshot)}"
        key = next(key for key in map(stem.__add__, layout.suffixes) if storage.head(key) is not None)
        seen = evidence(storage.get(key), key, layout, storage.head(CONFIG) is not None)
    return generations_of(layout, seen) or generations_of(layout)


def refuse_older(storage: Storage) -> None:
    """Raise ``FormatError`` (``unsupported-spec-version``) if the storage has an older repository."""
    layout = older_layout(storage)
    if layout is not None:
        raise FormatError(
            f"{storage.label()} has a repository of an older format "
            f"({described(generations(storage, layout))}), which cannot be opened",
            ErrorKind.UNSUPPORTED_SPEC_VERSION,
        ).with_remedy("Import it with `{}`", call("upgrade"))
