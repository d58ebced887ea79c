"""Objects that are no part of a version: unreferenced files, leases, records of collections, staged files."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import batched
from typing import Any, Final

import numpy as np

from frazil.display import counted
from frazil.errors import StorageError
from frazil.format.columns import U8
from frazil.format.ids import ids_from_text, ids_to_text
from frazil.maintenance.verification.findings import Finding
from frazil.repository.catalog.collection_guard import COLLECTIONS, LEASES, LONGEST, ROUNDING
from frazil.repository.clock import from_datetime, now_us, to_datetime
from frazil.repository.session.staged_work import STAGING, place_of_lease
from frazil.storage.base import ObjectInfo, Storage
from frazil.storage.checks import skip_damage
from frazil.survey.columns import ObjectListing, among, list_objects

_BATCH: Final = 1024
_SHOWN: Final = 3
_LIST_SUFFIX: Final = ".garbage"
_LONGEST_US: Final = LONGEST // timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, eq=False)
class FolderFiles:
    """The files of a folder when the verification began, and names that are not ids."""

    listing: ObjectListing
    strange: tuple[str, ...]
    strange_count: int


def folder_files(storage: Storage, folder: str) -> FolderFiles:
    """List a folder."""
    strange: list[str] = []
    count = 0
    for part in batched(storage.list(folder), _BATCH):
        names = [info.key.removeprefix(f"{folder}/") for info in part]
        bad = np.flatnonzero(~ids_from_text(names)[1]).tolist()
        strange += [names[row] for row in bad[: _SHOWN - len(strange)]]
        count += len(bad)
    return FolderFiles(list_objects(storage, folder), tuple(strange), count)


def name_findings(files: FolderFiles) -> Iterator[Finding]:
    """Yield a finding if files of a folder have names that are not ids."""
    if files.strange_count:
        names = ", ".join(files.strange)
        detail = f"{counted(files.strange_count, 'file')} with other names, such as {names}"
        yield Finding("file-name", files.listing.folder, detail=detail)


def unreferenced(files: FolderFiles, ids: U8) -> Iterator[Finding]:
    """Yield a finding if files of a folder are not among the ids, (k, 12), that versions need."""
    rest = files.listing.select_files(~among(files.listing.ids, ids))
    if len(rest):
        names = ", ".join(ids_to_text(rest.ids[:_SHOWN]))
        detail = (
            f"{counted(len(rest), 'file')} with {int(rest.sizes.sum())} bytes belong to no version, such as "
            f"{names}. A session that has not committed may need them"
        )
        yield Finding("unreferenced", files.listing.folder, detail=detail)


# Markers


def marker_findings(storage: Storage) -> Iterator[Finding]:
    """Yield what holders of leases, collections and jobs have stored."""
    leases = list(storage.list(LEASES))
    yield from _leases(storage, leases)
    yield from _collections(storage)
    yield from _jobs(storage, {place_of_lease(info.key) for info in leases})


def _content(storage: Storage, key: str) -> dict[str, Any] | None:
    """Return the content of an object, or None if it is missing or damaged."""
    with skip_damage(), suppress(ValueError, RecursionError):
        content = json.loads(bytes(storage.get(key)))
        return content if isinstance(content, dict) else None
    return None


def _leases(storage: Storage, objects: list[ObjectInfo]) -> Iterator[Finding]:
    for info in objects:
        try:
            content = _content(storage, info.key)
        except StorageError as error:
            yield Finding("unavailable", info.key, detail=error.message)
            continue
        if content is None or not all(type(content.get(name)) is int for name in ("age", "left")):
            if storage.head(info.key) is not None:
                detail = "the lease must have the numbers age and left. It protects nothing"
                yield Finding("lease-unreadable", info.key, detail=detail)
            continue
        until = from_datetime(info.modified) + min(content["left"], _LONGEST_US) + ROUNDING
        text = f"{content.get('purpose') or 'a session'}, until {to_datetime(max(until, 0)).isoformat()}"
        yield Finding("lease", info.key, detail=text)


def _collections(storage: Storage) -> Iterator[Finding]:
    for info in storage.list(COLLECTIONS):
        if info.key.endswith(_LIST_SUFFIX):
            continue
        try:
            content = _content(storage, info.key) or {}
        except StorageError as error:
            yield Finding("unavailable", info.key, detail=error.message)
            continue
        if content.get("done"):
            continue  # the mark of a collection that has ended
        started = from_datetime(info.modified)
        detail = f"announced at {info.modified.isoformat()}"
        killed = started + _LONGEST_US < now_us()
        yield Finding("collection-killed" if killed else "collection-running", info.key, detail=detail)


def _jobs(storage: Storage, places: set[str | None]) -> Iterator[Finding]:
    sizes: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for info in storage.list(STAGING):
        total = sizes[info.key.split("/")[1]]
        total[0] += 1
        total[1] += info.size
    for place, (count, size) in sorted(sizes.items()):
        check = "job-staged" if place in places else "job-abandoned"
        yield Finding(check, f"{STAGING}/{place}", detail=f"{counted(count, 'file')} with {size} bytes")
