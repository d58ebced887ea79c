"""The record of a withdrawal, which continues it after a kill, and the certificate that is made of it.

The record is the object ``withdrawals/<id>``, a file of numpy. It has ids, positions and digests of what was
removed, and no byte of it. Other implementations ignore the folder.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from hashlib import blake2b, sha256
from itertools import compress
from typing import Any, Final

import numpy as np

from frazil.display import Record, Shown, counted, literal
from frazil.errors import FormatError
from frazil.format.chunk_table import ChunkKind, ChunkTable, stack
from frazil.format.columns import U8, Ragged
from frazil.format.ids import (
    CHUNKS,
    MANIFESTS,
    OVERWRITTEN,
    REPO,
    SNAPSHOTS,
    STATISTICS,
    TRANSACTIONS,
    chunk_key,
    id_list,
    id_matrix,
    ids_to_text,
    manifest_key,
)
from frazil.format.manifest import Manifest
from frazil.format.repo_info import RepoInfo, decode_repo_info
from frazil.maintenance.repair.storages import QUARANTINE
from frazil.maintenance.withdrawal.copies import AT_ONCE, SOURCE, copied_files
from frazil.maintenance.withdrawal.spans import ChunkFiles, Spans, has_bytes
from frazil.repository.catalog.assets import MANIFEST
from frazil.repository.catalog.collection_guard import STAGING
from frazil.repository.catalog.context import Context
from frazil.repository.clock import now_us, to_datetime
from frazil.storage.base import Storage
from frazil.storage.checks import skip_missing
from frazil.survey.columns import ObjectListing, among, distinct, list_objects, no_ids
from frazil.survey.survey import side_by_side
from frazil.threads import Purpose, map_bounded

WITHDRAWALS: Final = "withdrawals"
OTHER_POSITIONS: Final = "other positions of the arrays, as after a shift: withdraw with `follow`"
_DIGEST_BYTES: Final = 12


@dataclass(frozen=True, slots=True, eq=False)
class Removal:
    """What a withdrawal removes. Ids are uint8 (k, 12).

    Attributes:
        key: The key of the object.
        what: The data in words.
        done: When it ended, in microseconds since 1970; 0 before.
        old: The snapshots that are replaced.
        new: The snapshots that replace them, in the same order.
        manifests: The manifests that are deleted.
        chunks: The chunk files that are deleted.
        packs: The chunk files with other chunks in which a span becomes zeros, once for each span.
        spans: These spans, int64 (n, 2).
        unused: Chunk files with bytes that no version used, and manifests with arrays that no version had.
            They stay.
        moved: Chunk files with bytes that other positions of the same arrays use, once for each span.
        moved_spans: These spans, int64 (n, 2).
        inline: Digests of inline chunks.
        moved_inline: Those of them that other positions of the same arrays have.
        sources: The URLs of foreign objects.
        counts: The numbers of the report, as JSON.
    """

    key: str
    what: tuple[str, ...] = ()
    done: int = 0
    old: U8 = field(default_factory=no_ids)
    new: U8 = field(default_factory=no_ids)
    manifests: U8 = field(default_factory=no_ids)
    chunks: U8 = field(default_factory=no_ids)
    packs: U8 = field(default_factory=no_ids)
    spans: Any = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    unused: U8 = field(default_factory=no_ids)
    moved: U8 = field(default_factory=no_ids)
    moved_spans: Any = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    inline: U8 = field(default_factory=no_ids)
    moved_inline: U8 = field(default_factory=no_ids)
    sources: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)

    def put(self, storage: Storage) -> None:
        """Store the record."""
        file, texts = io.BytesIO(), json.dumps([self.what, self.done, self.sources, self.counts])
        columns = {name: getattr(self, name) for name in _COLUMNS}
        np.savez_compressed(file, texts=np.frombuffer(texts.encode(), np.uint8), **columns)
        storage.put(self.key, file.getvalue())

    @staticmethod
    def read(storage: Storage, key: str) -> Removal:
        """Return a stored record."""
        try:
            with np.load(io.BytesIO(bytes(storage.get(key))), allow_pickle=False) as file:
                what, done, sources, counts = json.loads(file["texts"].tobytes())
                columns = {name: file[name] for name in _COLUMNS}
        except Exception as error:  # damaged bytes may raise any error
            raise FormatError(f"{key}: must be the record of a withdrawal, got {error}") from error
        return Removal(key, tuple(what), done, sources=tuple(sources), counts=counts, **columns)

    def erased(self, files: ChunkFiles) -> Spans:
        """Return the spans of packs that become zeros, of the files that exist."""
        return files.placed(self.packs, self.spans)


_IDS: Final = ("old", "new", "manifests", "chunks", "packs", "unused", "moved", "inline", "moved_inline")
_COLUMNS: Final = (*_IDS, "spans", "moved_spans")


def removals(storage: Storage) -> list[Removal]:
    """Return all records, the oldest first."""
    objects = sorted(storage.list(WITHDRAWALS), key=lambda each: (each.modified, each.key))
    return [Removal.read(storage, each.key) for each in objects]


def inline_digests(table: ChunkTable, chosen: Any) -> U8:
    """Return the distinct digests of the inline chunks among chosen rows."""
    source = np.unique(table.source[chosen & (table.kind == ChunkKind.INLINE)])
    return distinct([digests_of(table.inline.take(source))])


def digests_of(rows: Ragged) -> U8:
    """Return the digest of each row of bytes."""
    return id_matrix([blake2b(each, digest_size=_DIGEST_BYTES).digest() for each in rows.blobs()])


def table_of(manifest: Manifest) -> ChunkTable:
    """Return all references of a manifest. Their coordinates are left out."""
    tables = [each for table in manifest.arrays.values() for each in (table, *table.others)]
    return stack(tables, np.zeros((0, 0), np.uint32)) if tables else ChunkTable.empty(0)


@dataclass(frozen=True, slots=True, repr=False)
class WithdrawalCertificate(Record, shown_as="ops.WithdrawalCertificate"):
    """The proof that no stored byte of withdrawn data is left, from a read of what is stored.

    Attributes:
        id: The id of the withdrawal.
        what: The data in words.
        written_at: When the withdrawal ended; None if it was interrupted.
        checked_at: When the storage was read for this certificate.
        snapshots: The id of each version that was replaced, and the id of the version that replaced it.
        counts: How much was removed: ``references``, ``chunk_files``, ``packs`` with zeros,
            ``inline_chunks``, ``bytes_removed`` from chunk files; and ``bytes_shared``, which stay because
            references outside of the data use them.
        sources: The URLs of foreign objects to which references were removed. They are not a part of the
            repository, and may still have the data.
        digest: The SHA-256 of the ids, positions and digests of what was removed.
        left: What is left of the data, or may be, with what to do. Empty if nothing is.
    """

    id: str
    what: tuple[str, ...]
    written_at: datetime | None
    checked_at: datetime
    snapshots: Mapping[str, str] = field(hash=False)
    counts: Mapping[str, int] = field(hash=False)
    sources: tuple[str, ...]
    digest: str
    left: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether no stored byte of the data is left."""
        return not self.left

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        for name in (each.name for each in fields(self)):
            value = getattr(self, name)
            text = literal(list(value) if isinstance(value, tuple) else value)
            yield name, counted(len(value), "replaced version") if name == "snapshots" else text


def certify(context: Context, removal: Removal) -> WithdrawalCertificate:
    """Read what is stored, and return the certificate of a withdrawal."""
    old, new = map(ids_to_text, (removal.old, removal.new))
    digest = sha256(json.dumps([removal.what, removal.sources]).encode())
    for name in _COLUMNS:
        digest.update(np.ascontiguousarray(getattr(removal, name)).tobytes())
    return WithdrawalCertificate(
        removal.key.rpartition("/")[2],
        removal.what,
        to_datetime(removal.done) if removal.done else None,
        to_datetime(now_us()),
        dict(zip(old, new, strict=True)),
        removal.counts,
        removal.sources,
        digest.hexdigest(),
        tuple(_left(context, removal)),
    )


def _left(context: Context, removal: Removal) -> Iterator[str]:
    """Yield what is left of withdrawn data, or may be."""
    storage, again = context.storage, "repeat the withdrawal"
    if not removal.done:
        yield f"the withdrawal was interrupted: {again}"
    folders = {
        CHUNKS: removal.chunks,
        SNAPSHOTS: removal.old,
        TRANSACTIONS: removal.old,
        MANIFESTS: removal.manifests,
        STATISTICS: removal.manifests,
    }
    listings = {folder: list_objects(storage, folder) for folder in folders}
    for folder, ids in folders.items():
        if keys := listings[folder].select_files(among(listings[folder].ids, ids)).keys():
            yield f"{counted(len(keys), 'file')} of the data, such as {keys[0]}: {again}"
    files = ChunkFiles.of(listings[CHUNKS])
    packs = list(files.by_file(removal.erased(files)))
    found = map_bounded(Purpose.RANGE_READS, lambda each: has_bytes(storage, *each), packs)
    for (id_, _), has in zip(packs, found, strict=True):
        if has:
            yield f"bytes of the data in {chunk_key(id_)}: {again}"
    unused = [listings[folder].find_sizes(removal.unused)[0] for folder in (CHUNKS, MANIFESTS)]
    if count := sum(map(np.count_nonzero, unused)):
        yield (
            f"{counted(int(count), 'file')} ({int(sum(map(np.sum, unused))):,} bytes) had chunks that no "
            "version used, and that may be those of the data: collect garbage, then repeat the withdrawal if "
            "they stay"
        )
    moved = files.by_file(files.placed(removal.moved, removal.moved_spans))
    has_moved = len(removal.moved_inline) and among(removal.moved_inline, stored_inline(storage)).any()
    if has_moved or any(map_bounded(Purpose.RANGE_READS, lambda each: has_bytes(storage, *each), moved)):
        yield f"bytes of the data are in use at {OTHER_POSITIONS}"
    records = removals(storage)  # of this withdrawal and later ones: a person may name the cells afterwards
    at = next((at for at, each in enumerate(records) if each.key == removal.key), len(records))
    arrays = (text for each in records[at:] for text in each.what if not text.startswith(SOURCE))
    yield from copied_files(context, (*removal.what, *arrays), {u for each in records for u in each.sources})
    yield from _left_references(context, removal, listings[MANIFESTS], files)

    def names_removed_version(key: str) -> bool:
        with skip_missing():
            return names_any(decode_repo_info(storage.get(key), key), removal.old)
        return False

    keys = [REPO, *backup_keys(storage)]
    for key in compress(keys, side_by_side(keys, names_removed_version, AT_ONCE)):
        yield f"{key} names a replaced version: {again}"
    since = storage.head(removal.key)
    for folder, remedy in ((STAGING, "end or discard its job"), (QUARANTINE, "delete it")):
        keys = [each.key for each in storage.list(folder) if since and each.modified <= since.modified]
        if keys:
            yield f"{counted(len(keys), 'file')} that may have the data, such as {keys[0]}: {remedy}"


def _left_references(
    context: Context, removal: Removal, manifests: ObjectListing, files: ChunkFiles
) -> Iterator[str]:
    """Yield the manifests that refer to removed data."""
    erased, sources = removal.erased(files), set(removal.sources)
    inline = removal.inline[~among(removal.inline, removal.moved_inline)]

    def check(id_: bytes) -> list[str]:
        with skip_missing():
            table = table_of(MANIFEST.read(context.storage, id_))
            every = np.ones(len(table), np.bool_)
            urls = context.virtual.urls(table.foreign.locations.texts()) if sources else ()
            problems = {
                "a removed chunk file": among(table.chunk_ids, removal.chunks).any()
                or files.spans(table, every).common(erased).length,
                "an inline chunk with the same bytes": len(inline)
                and among(inline_digests(table, every), inline).any(),
                "a withdrawn source": not sources.isdisjoint(urls),
            }
            return [f"{manifest_key(id_)} has {name}" for name, has in problems.items() if has]
        return []

    for found in side_by_side(id_list(manifests.ids), check, AT_ONCE):
        yield from (f"{each}: repeat the withdrawal" for each in found)


def stored_inline(storage: Storage) -> U8:
    """Return the digests of all inline chunks."""

    def read(id_: bytes) -> U8:
        with skip_missing():
            table = table_of(MANIFEST.read(storage, id_))
            return inline_digests(table, np.ones(len(table), np.bool_))
        return no_ids()

    return distinct(list(side_by_side(id_list(list_objects(storage, MANIFESTS).ids), read, AT_ONCE)))


def names_any(info: RepoInfo, ids: U8) -> bool:
    """Return whether a repo info names one of some snapshots."""
    return any(among(each, ids).any() for each in (info.table.ids(), info.ops.new, info.ops.previous))


def backup_keys(storage: Storage) -> list[str]:
    """Return the keys of the backups of ``repo``."""
    return [each.key for each in storage.list(OVERWRITTEN) if each.key.startswith(f"{OVERWRITTEN}/{REPO}.")]
