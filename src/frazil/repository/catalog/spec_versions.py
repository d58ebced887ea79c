"""The versions of the specification that this library reads and writes.

Such a repository cannot be opened, only imported (``frazil.upgrade``). The error of an open says so.
"""

from __future__ import annotations

from contextlib import suppress

from frazil.errors import ErrorKind, FormatError, InvalidInputError, StorageError
from frazil.format.ids import CONFIG, id_to_text
from frazil.format.older.generations import (
    LAYOUTS,
    Evidence,
    Generation,
    Layout,
    decode_ref,
    described,
    generations_of,
    ref_files,
    sequence_number,
)
from frazil.format.older.snapshot import evidence
from frazil.remedies import call
from frazil.repository.catalog.version_info import SpecVersion
from frazil.repository.retries import RetryPolicy, write_once
from frazil.storage.base import IfAbsent, Storage


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


def spec_version() -> SpecVersion:
    """Return the version of the format that new repositories get.

    Returns:
        The newest version that this library writes.

    Examples:
        >>> spec_version()
        SpecVersion.v2 (current)
    """
    return SpecVersion.current()


def supported_spec_versions() -> list[SpecVersion]:
    """Return the versions of the format that this library reads and writes.

    Returns:
        The versions, the newest first.

    Examples:
        >>> supported_spec_versions()
        [SpecVersion.v2 (current), SpecVersion.v1]
    """
    return sorted(SpecVersion, key=int, reverse=True)


def not_empty(storage: Storage, key: str, *, is_repository: bool) -> InvalidInputError:
    """Return the error for a new repository in a storage that already has the object ``key``."""
    kind = ErrorKind.PARENT_DIRECTORY_NOT_CLEAN
    if is_repository:
        error = InvalidInputError(f"a repository already exists in the storage {storage.label()}", kind)
        return error.with_remedy("Open it with Repository.open", shell="")
    return InvalidInputError(
        f"the storage must be empty for a new repository, got `{key}` in {storage.label()}", kind
    ).with_remedy(
        "Use an empty directory or prefix, or pass check_clean_root=False to keep the other files",
        shell="Use an empty directory or prefix",
    )


def require_prefix(storage: Storage) -> None:
    """Raise an error if a new repository would be at the root of a bucket."""
    if storage.is_whole_bucket:
        raise InvalidInputError(
            f"the storage of a new repository must have a prefix in the bucket, got {storage.label()} "
            "without a prefix. Pass a prefix to the storage",
            ErrorKind.EMPTY_PREFIX_CREATION,
        )


def create_first(storage: Storage, key: str, data: bytes, policy: RetryPolicy) -> None:
    """Write the first file of a repository, unless another writer has written it.

    ``data`` must differ from the data of every other writer. Raises ``InvalidInputError``
    (``parent-directory-not-clean``) if another writer has written the file, and the errors of ``write_once``.
    """
    if not write_once(storage, key, data, policy, IfAbsent(), "the creation of the repository"):
        raise not_empty(storage, key, is_repository=True)
