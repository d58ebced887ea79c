"""The import of an older repository, as a function: ``frazil.upgrade``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from frazil.arguments import checked
from frazil.errors import ErrorKind, FormatError, RepositoryNotFoundError
from frazil.format.keys import REPO
from frazil.format.older.generations import DOT, DRAFT
from frazil.importing.history import read_history
from frazil.importing.ids import NewIds
from frazil.importing.import_job import ImportJob, ImportPlan
from frazil.importing.import_target import read_repo_file, require_clean, require_writable
from frazil.importing.report import ImportReport
from frazil.importing.sizes import sizes_of
from frazil.importing.source import Source
from frazil.repository.catalog.generations import older_layout
from frazil.repository.handle.virtual_access import explicit_access
from frazil.repository.settings.config import RepositoryConfig
from frazil.repository.settings.config_secrets import document_to_save
from frazil.storage.base import Storage
from frazil.storage.credentials import AnyCredential

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
    """Import a repository of a format older than spec version 1 (0.1.0a1 to 0.1.3, and the draft before).

    The new repository, of spec version 2, has the same history: snapshots with their parents, messages,
    times and metadata, branches, tags, and every array of every snapshot. Without ``target_storage`` it is
    made in place, beside the old files, which all stay as they are: until a garbage collection, which
    deletes those that the new repository does not use.

    ``chunks`` says what becomes of chunk files: ``"copy"`` copies them; ``"reference"`` leaves them where
    they are, and refers to them as virtual chunks, which have to be authorised when the repository is
    opened. ``"auto"`` copies them, but for an import in place, where the new repository can use them as
    they are. (Files of the draft have other names, and are always copied then.)

    What ``config`` sets is saved with the new repository, over what the old one had; options and headers of
    containers that may hold a secret need ``store_secrets``, as for ``Repository.create``. So do those of
    the old repository, if the new one is elsewhere. Some old
    repositories have virtual references that are longer than their objects, which nobody reads any more.
    Where ``authorize_virtual_chunk_access`` (credentials by URL prefix, as for ``Repository.open``) allows to
    look at the objects, such references are cut at the end.

    An import that was interrupted can be repeated, and goes on; one that is done does nothing.

    Raises ``RepositoryNotFoundError`` if there is no older repository; ``FormatError`` where a file of it is
    damaged, or the repository is of spec version 1 or 2 already; ``InvalidInputError``
    (``parent-directory-not-clean``) if the target has something else in it.

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
        raise ValueError(f"chunks: expected auto, copy or reference, found {chunks!r}")
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
    plan = ImportPlan(
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
    return ImportJob(plan).run() if existing is None else ImportJob(plan).compared(existing)


def _source(storage: Storage) -> Source:
    layout = older_layout(storage)
    if layout is not None:
        return Source(storage, layout)
    for key, version, advice in (
        (REPO, 2, "it can be opened"),
        ("refs/branch.main/ref.json", 1, "use `frazil.upgrade_icechunk_repository`"),
    ):
        if storage.head(key) is not None:
            raise FormatError(
                f"expected a repository older than spec version 1 to import, found one of version {version} "
                f"in {storage.label()}: {advice}",
                ErrorKind.UNSUPPORTED_OPERATION_FOR_VERSION,
            )
    next(iter(storage.list(DOT.refs)), None)  # where nothing can be listed, that is what to say
    raise RepositoryNotFoundError(f"no repository to import in {storage.label()}: correct the place")
