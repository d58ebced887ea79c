"""Files that no version refers to, and files whose names are not ids. Nothing is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import batched
from typing import Final

import numpy as np

from frazil.display import counted
from frazil.format.columns import U8
from frazil.format.ids import ids_from_text, ids_to_text
from frazil.maintenance.listing import Listed, among, listed
from frazil.maintenance.verification.findings import Finding
from frazil.storage.base import Storage

_BATCH: Final = 1024
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, eq=False)
class Files:
    """The files of a folder when the verification began, and names that are not ids."""

    listed: Listed
    strange: tuple[str, ...]
    strange_count: int


def folder_files(storage: Storage, folder: str) -> Files:
    """List a folder."""
    strange: list[str] = []
    count = 0
    for part in batched(storage.list(folder), _BATCH):
        names = [info.key.removeprefix(f"{folder}/") for info in part]
        bad = np.flatnonzero(~ids_from_text(names)[1]).tolist()
        strange += [names[row] for row in bad[: _SHOWN - len(strange)]]
        count += len(bad)
    return Files(listed(storage, folder), tuple(strange), count)


def name_findings(files: Files) -> Iterator[Finding]:
    """Yield a finding if files of a folder have names that are not ids."""
    if files.strange_count:
        names = ", ".join(files.strange)
        detail = f"{counted(files.strange_count, 'file')} with other names, such as {names}"
        yield Finding("file-name", files.listed.folder, detail=detail)


def unreferenced(files: Files, ids: U8) -> Iterator[Finding]:
    """Yield a finding if files of a folder are not among the ids, (k, 12), that versions need."""
    rest = files.listed.select_files(~among(files.listed.ids, ids))
    if len(rest):
        names = ", ".join(ids_to_text(rest.ids[:_SHOWN]))
        detail = (
            f"{counted(len(rest), 'file')} with {int(rest.sizes.sum())} bytes belong to no version, such as "
            f"{names}. A session that has not committed may need them"
        )
        yield Finding("unreferenced", files.listed.folder, detail=detail)
