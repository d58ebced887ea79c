"""The repair of refs and of the configuration in spec version 1, where each has a file of its own.

    tag      A tag never moves. So the file of a copy is right.
    branch   Each snapshot names its parent. So the tip is the only snapshot without children that no other
             ref leads to, and that has the commit of the copy among its ancestors, if there is a copy.
    config   The file of a copy if no backup has the same content, else the newest backup.

Branches and tags that were deleted leave no damaged file, and are not restored. Every repository has the
branch ``main``, so a missing ``main`` is damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from frazil.errors import ErrorKind, FormatError, IcechunkError, StorageError
from frazil.format.ids import id_to_text
from frazil.format.keys import CONFIG, OVERWRITTEN, REFS, REPO, backup_key
from frazil.format.snapshot_table import SnapshotEntry
from frazil.host import random_bytes
from frazil.maintenance.repair.repair_plan import Certainty, RepairStep
from frazil.maintenance.repair.steps import Origin, Site, Step
from frazil.repository.catalog.catalog_v1 import read_config_v1
from frazil.repository.catalog.refs_v1 import RefKind, encode_ref, list_refs, read_ref, ref_key
from frazil.repository.catalog.repo_changes import MAIN
from frazil.repository.catalog.snapshots_v1 import read_all_snapshots
from frazil.repository.settings.config_document import from_document
from frazil.repository.settings.config_yaml import load_config
from frazil.storage.base import Storage
from frazil.storage.outages import is_outage, skip_damage


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Writes a small file with a content of the plan."""

    key: str
    data: bytes
    source: str
    why: str
    certainty: Certainty

    def describe(self) -> RepairStep:
        """Return the step as a value for users."""
        return RepairStep("rebuild", (self.key,), self.source, self.why, self.certainty)

    def perform(self, site: Site) -> None:
        """Write the file, and put the damaged file aside."""
        site.quarantine.replace_file(site.storage, self.key, self.data)


def is_version_1(storage: Storage, copies: Sequence[Storage]) -> bool:
    """Return whether the repository has spec version 1: refs, and no trace of a file ``repo``."""
    if storage.head(REPO) is not None or any(
        info.key.startswith(backup_key(f"{REPO}.")) for info in storage.list(OVERWRITTEN)
    ):
        return False
    return any(next(iter(each.list(REFS)), None) is not None for each in (storage, *copies))


def ref_steps(storage: Storage, copies: Sequence[Storage]) -> list[Step]:
    """Return the steps that repair refs and the configuration of spec version 1."""
    return [*_refs(storage, copies), *_config(storage, copies)]


def _refs(storage: Storage, copies: Sequence[Storage]) -> Iterator[Step]:
    names, _ = list_refs(storage)
    names[RefKind.BRANCH].add(MAIN)
    damaged: list[tuple[RefKind, str, str]] = []
    tips: list[bytes] = []
    for kind in RefKind:
        for name in sorted(names[kind]):
            try:
                ref = read_ref(storage, kind, name)
            except FormatError as error:
                damaged.append((kind, name, error.message))
            else:
                tips += [] if ref is None else [ref.snapshot]
                if ref is None and name == MAIN:
                    damaged.append((kind, name, "the file of the branch `main` is missing"))
    if not damaged:
        return
    entries = _readable(storage)
    only = sum(kind is RefKind.BRANCH for kind, _, _ in damaged) == 1
    for kind, name, why in damaged:
        copy = _in_copies(copies, kind, name)
        if kind is RefKind.TAG:
            if copy is not None and copy in entries:
                yield _write(storage, kind, name, copy, "a copy", why, "proved")
        elif copy is not None or only:
            heads = _heads(entries, tips, copy)
            if len(heads) == 1:
                source = "the parents of snapshots" + ("" if copy is None else " and a copy")
                yield _write(storage, kind, name, heads[0], source, why, "consistent")


def _write(
    storage: Storage, kind: RefKind, name: str, tip: bytes, source: str, why: str, certainty: Certainty
) -> WriteFile:
    reason = f"{why}; the {kind.value} `{name}` is on {id_to_text(tip)}"
    return WriteFile(
        ref_key(storage, kind, name), encode_ref(tip, random_bytes(8)), source, reason, certainty
    )


def _readable(storage: Storage) -> dict[bytes, SnapshotEntry]:
    entries: dict[bytes, SnapshotEntry] = {}
    for id_, result in read_all_snapshots(storage).items():
        if isinstance(result, SnapshotEntry):
            entries[id_] = result
        elif is_outage(result):
            raise result
    return entries


def _in_copies(copies: Sequence[Storage], kind: RefKind, name: str) -> bytes | None:
    """Return the snapshot of a ref in the first copy that has it."""
    for copy in copies:
        with skip_damage():
            ref = read_ref(copy, kind, name)
            if ref is not None:
                return ref.snapshot
    return None


def _heads(entries: dict[bytes, SnapshotEntry], tips: Sequence[bytes], base: bytes | None) -> list[bytes]:
    """Return the snapshots without children that no ref leads to, and that descend from ``base``."""
    parents = {entry.parent for entry in entries.values()}
    reached = set[bytes]()
    for tip in tips:
        reached.update(_chain(entries, tip))
    heads = [id_ for id_ in entries if id_ not in parents and id_ not in reached]
    if base is not None:
        heads = [id_ for id_ in heads if base in _chain(entries, id_)]
        if not heads and base in entries:  # the branch has not moved since the copy
            return [base]
    return heads


def _chain(entries: dict[bytes, SnapshotEntry], tip: bytes) -> list[bytes]:
    chain: dict[bytes, None] = {}
    at: bytes | None = tip
    while at is not None and at in entries and at not in chain:
        chain[at] = None
        at = entries[at].parent
    return list(chain)


def _config(storage: Storage, copies: Sequence[Storage]) -> Iterator[Step]:
    try:
        read_config_v1(storage)
    except StorageError as error:
        if error.kind != ErrorKind.OBJECT_NOT_FOUND:
            raise
        return
    except IcechunkError as error:
        why = error.message
    else:
        return
    # Each save stores the content before it as a backup. So a content that is in no backup is newer.
    backups = _configs(Origin("a backup", storage, key) for key in _config_backups(storage))
    others = _configs(Origin(copy.label(), copy, CONFIG) for copy in copies)
    own = [data for _, data in backups]
    for label, data in [*((label, data) for label, data in others if data not in own), *backups]:
        yield WriteFile(CONFIG, data, label, why, "consistent")
        return


def _config_backups(storage: Storage) -> list[str]:
    """Return the keys of the backups of the configuration, the newest first."""
    return sorted(info.key for info in storage.list(OVERWRITTEN) if info.key.startswith(backup_key(CONFIG)))


def _configs(origins: Iterable[Origin]) -> list[tuple[str, bytes]]:
    """Return the contents that are a configuration, with the label of each."""
    contents: list[tuple[str, bytes]] = []
    for origin in origins:
        with skip_damage():
            data = bytes(origin.read())
            from_document(load_config(data))
            contents.append((origin.label, data))
    return contents
