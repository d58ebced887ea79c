"""The steps of a repair: what they have in common, and the step that copies files."""

from __future__ import annotations

from collections.abc import Buffer, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any, Final, Protocol

from frazil.display import counted
from frazil.errors import FormatError
from frazil.format.chunk_check import check_file
from frazil.format.chunk_trailer import find_remains, is_marked
from frazil.format.ids import OBJECT_ID_BYTES, id_from_text
from frazil.format.keys import CHUNKS, MANIFESTS, OVERWRITTEN, SNAPSHOTS, TRANSACTIONS, chunk_key
from frazil.format.repo_info import decode_repo_info
from frazil.maintenance.repair.overlay import Overlay
from frazil.maintenance.repair.quarantine import Quarantine
from frazil.maintenance.repair.repair_plan import Certainty, RepairStep
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.files import MANIFEST, SNAPSHOT, TRANSACTION_LOG, FileKind, require_id
from frazil.storage.base import Storage
from frazil.threads import Purpose, map_bounded

#: The files that contain their id.
KINDS: Final[Mapping[str, FileKind[Any]]] = {
    SNAPSHOTS: SNAPSHOT,
    MANIFESTS: MANIFEST,
    TRANSACTIONS: TRANSACTION_LOG,
}


class Site:
    """The place where steps are made: the storage of the repository, or an overlay of it."""

    def __init__(
        self,
        storage: Storage,
        quarantine: Quarantine,
        open_context: Callable[[Storage], Context],
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self.storage = storage
        #: The metadata of commits.
        self.metadata = dict(metadata or {})
        self.quarantine = quarantine
        self._open = open_context

    @cached_property
    def context(self) -> Context:
        """The context of the repository. The file ``repo`` must be readable."""
        return self._open(self.storage)


class Step(Protocol):
    """A step of a repair."""

    def describe(self) -> RepairStep:
        """Return the step as a value for users."""

    def perform(self, site: Site) -> None:
        """Make the step. A second call changes nothing."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A file that has, or may have, the content of a damaged file.

    ``stop`` is the end of the content: the trailer of a chunk file belongs to its own name. None means the
    whole file.
    """

    label: str
    storage: Storage
    key: str
    stop: int | None = None

    def read(self) -> Buffer:
        """Return the content. Raises ``StorageError`` if it cannot be read."""
        return self.storage.get(self.key, 0, self.stop)


def check_content(key: str, data: Buffer, end: int = 0) -> Certainty:
    """Check that bytes are a content of the file ``key``."""
    folder, _, name = key.partition("/")
    if folder in KINDS:
        kind = KINDS[folder]
        require_id(key, kind.name, id_from_text(name), kind.decode(data, key).id)
        return "proved"
    if folder == OVERWRITTEN:
        decode_repo_info(data, key)
    elif folder == CHUNKS:
        size = memoryview(data).nbytes
        if size < end:
            raise FormatError(f"{key}: the content must have {end} bytes, got {size}. Use another copy")
        return _check_chunks(id_from_text(name), data, end)
    return "consistent"


def _check_chunks(id_: bytes, data: Buffer, end: int) -> Certainty:
    """Check the bytes of a chunk file with the checksums in it, or with its name if that is a hash."""
    check = check_file(id_, data)
    rest = memoryview(data)[end:]
    if check.trailer is None and (find_remains(id_, rest) or (len(rest) and is_marked(id_))):
        raise FormatError(f"{chunk_key(id_)}: the end of the content is cut off. Use another copy")
    if check.trailer is None:
        return "proved" if id_ == sha256(data).digest()[:OBJECT_ID_BYTES] else "consistent"
    if not check.ok:
        raise FormatError(
            f"{chunk_key(id_)}: {counted(len(check.rows), 'chunk')} of the content differ from their "
            "checksums. Use another copy"
        )
    return "proved"


@dataclass(frozen=True, slots=True)
class CopyFiles:
    """Writes files with the contents of their origins.

    ``ends`` has the number of bytes that references need, for chunk files.
    """

    origins: Sequence[tuple[str, Origin]]
    why: str
    certainty: Certainty
    ends: Mapping[str, int] = field(default_factory=dict)

    def describe(self) -> RepairStep:
        """Return the step as a value for users."""
        keys = tuple(key for key, _ in self.origins)
        return RepairStep("copy", keys, self.origins[0][1].label, self.why, self.certainty)

    def perform(self, site: Site) -> None:
        """Copy the files. On an overlay, only link them."""
        if isinstance(site.storage, Overlay):
            for key, origin in self.origins:
                if origin.stop is None:
                    site.storage.link(key, origin.storage, origin.key)
                else:
                    site.storage.put(key, origin.read())
            return
        # Contents of files that the step itself replaces must be read before the first write.
        own = {key for key, _ in self.origins}
        early = {key: origin.read() for key, origin in self.origins if origin.key in own - {key}}

        def copy_file(pair: tuple[str, Origin]) -> None:
            key, origin = pair
            data = early[key] if key in early else origin.read()
            check_content(key, data, self.ends.get(key, 0))
            site.quarantine.replace_file(site.storage, key, data)

        map_bounded(Purpose.FILE_COPIES, copy_file, list(self.origins))
