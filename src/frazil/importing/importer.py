"""The function that imports an older repository: ``frazil.upgrade``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from frazil.arguments import checked
from frazil.errors import ErrorKind, FormatError, RepositoryNotFoundError
from frazil.format.keys import REPO
from frazil.format.older.generations import DOT, DRAFT
from frazil.importing.history import read_history
from frazil.importing.ids import NewIds
from frazil.importing.import_job import ImportJob
from frazil.importing.import_target import read_repo_file, require_clean, require_writable
from frazil.importing.report import ImportReport
from frazil.importing.sizes import sizes_of
from frazil.importing.source import Source
from frazil.remedies import Remedy, call
from frazil.repository.catalog.generations import older_layout
from frazil.repository.handle.virtual_access import explicit_access
from frazil.repository.settings.config import RepositoryConfig
from frazil.repository.settings.config_document import document_to_save
from frazil.storage.base import Storage
from frazil.storage.credential_families import AnyCredential

Chunks = Literal["auto", "copy", "reference"]


@checked
def upgrade(
    source_storage: Storage,
    target_storage: Storage | None = None,
    *,
    chunks: Chunks = "auto",
    config: RepositoryConfig | None = None,
    authorize_virtual_chunk_access: Mapping[str, AnyCredential | None] | None = None,
    store_secrets: bool = False,
) -> ImportReport:
    """Import a repository of a format older than spec version 1, with its whole history.

    These are the formats of 0.1.0a1 to 0.1.3, and the draft before them. The new repository has spec version
    2. It has the same snapshots with their parents, messages, times and metadata, the same branches and tags,
    and every array of every snapshot.

    Without ``target_storage``, the new repository is created in place, beside the old files. The import
    does not change the old files. A later garbage collection deletes the old files that the new repository
    does not use.

    Some old repositories have virtual references that are longer than their objects. Such references cannot
    be read. Where ``authorize_virtual_chunk_access`` allows requests to the objects, the import shortens them
    to the end of the object.

    An interrupted import can be repeated and continues. If the import is complete, another call
    writes nothing.

    Args:
        source_storage: Storage of the old repository.
        target_storage: Empty storage for the new repository. Default: the same storage.
        chunks: What to do with chunk files. ``"copy"`` copies them. ``"reference"`` leaves them in place and
            refers to them as virtual chunks, which must be authorised when the repository is opened.
            ``"auto"``, the default, copies them, except for an import in place, where the new repository uses
            the same files. (Chunk files of the draft have other names, and are copied in this case, too.)
        config: Configuration that is saved with the new repository. It overrides the old configuration.
            Default: the old configuration.
        authorize_virtual_chunk_access: Credentials by URL prefix, as for ``Repository.open``. Default: none.
        store_secrets: Whether to save options and headers of containers that may contain a secret, as for
            ``Repository.create``. It also applies to the old configuration if the new repository is in
            another storage. Default: False.

    Returns:
        A report with counts, and with everything that was not imported and why.

    Raises:
        RepositoryNotFoundError: There is no older repository in ``source_storage``.
        FormatError: A file of the old repository is damaged; ``unsupported-operation-for-version`` if the
            repository already has spec version 1 or 2.
        InvalidInputError: ``parent-directory-not-clean`` if the target contains other files.
        ReadOnlyError: ``read-only-storage`` if the target is read only.
        ValueError: ``chunks`` has another value.

    Examples:
        >>> import frazil
        >>> frazil.upgrade(frazil.in_memory_storage())
        Traceback (most recent call last):
            ...
        frazil.errors.RepositoryNotFoundError: ...
    """
    if config is not None:
        document_to_save(config, store_secrets)
    source = _source(source_storage)
    in_place = target_storage is None
    target = source_storage if target_storage is None else target_storage
    if chunks not in ("auto", "copy", "reference"):
        raise ValueError(f"chunks must be auto, copy or reference, got {chunks!r}")
    require_writable(target)
    ids = NewIds(in_place)
    refs = source.refs()
    history = read_history(source, refs, ids)
    users = history.users()
    existing = read_repo_file(target)
    if existing is None and not in_place:
        require_clean(target, history, users, ids)
    reference = chunks == "reference" and not (in_place and source.layout is not DRAFT)
    settings = source.settings()
    job = ImportJob(
        source=source,
        target=target,
        refs=refs,
        history=history,
        users=users,
        ids=ids,
        references_chunks=reference,
        in_place=in_place,
        settings=settings,
        config=config,
        sizes=sizes_of(settings, config, explicit_access(authorize_virtual_chunk_access)),
        store_secrets=store_secrets,
    )
    return job.run() if existing is None else job.compared(existing)


def _source(storage: Storage) -> Source:
    layout = older_layout(storage)
    if layout is not None:
        return Source(storage, layout)
    upgrade = Remedy("Upgrade it with `{}`", (call("upgrade_icechunk_repository"),))
    for key, version, remedy in (
        (REPO, 2, Remedy("It can be opened")),
        ("refs/branch.main/ref.json", 1, upgrade),
    ):
        if storage.head(key) is not None:
            error = FormatError(
                f"the repository to import must be older than spec version 1, got version {version} in "
                f"{storage.label()}",
                ErrorKind.UNSUPPORTED_OPERATION_FOR_VERSION,
            )
            error.remedy = remedy
            raise error
    next(iter(storage.list(DOT.refs)), None)  # a storage that cannot list raises its own error here
    raise RepositoryNotFoundError(f"no repository to import in {storage.label()}. Correct the location")
