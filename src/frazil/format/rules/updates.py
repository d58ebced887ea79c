"""The rules for the ops log in the file ``repo``.

Specification: *Update* and *Updates to the repo info file*.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from frazil.format.flatbuffer import Tables
from frazil.format.keys import match_backup_name
from frazil.format.ops_log import UpdateKind
from frazil.format.rules.violation import Violation

_UPDATES, _BEFORE = 7, 8
_KIND, _UPDATE, _TIME, _BACKUP = 0, 1, 2, 3
#: The required fields of updates, by kind: slots in their tables.
_REQUIRED: Final = {
    UpdateKind.TAG_CREATED: (0,),
    UpdateKind.TAG_DELETED: (0, 1),
    UpdateKind.BRANCH_CREATED: (0,),
    UpdateKind.BRANCH_DELETED: (0, 1),
    UpdateKind.BRANCH_RESET: (0, 1),
    UpdateKind.NEW_COMMIT: (0, 1),
    UpdateKind.COMMIT_AMENDED: (0, 1, 2),
    UpdateKind.NEW_DETACHED_SNAPSHOT: (0,),
}


def kinds_of_updates(root: Tables) -> Iterator[Violation]:
    """Every update has one of the kinds of the schema."""
    kinds = root.children(_UPDATES)[0].scalars(_KIND, np.uint8)
    strange = kinds[(kinds < min(UpdateKind)) | (kinds > max(UpdateKind))]
    if len(strange):
        yield Violation("update-kind", f"a kind of update must be 1 to {max(UpdateKind):d}, got {strange[0]}")


def fields_of_updates(root: Tables) -> Iterator[Violation]:
    """Updates have the required fields of their kind."""
    updates = root.children(_UPDATES)[0]
    kinds = updates.scalars(_KIND, np.uint8)
    for kind, slots in _REQUIRED.items():
        tables, _ = updates.take(np.flatnonzero(kinds == kind)).tables(_UPDATE)
        for slot in slots:
            if not tables.present(slot).all():
                yield Violation("repo-required", f"an update {kind.name} lacks the field {slot}")


def order_of_updates(root: Tables) -> Iterator[Violation]:
    """The newest update is first."""
    times = root.children(_UPDATES)[0].scalars(_TIME, "<u8")
    if (times[:-1] <= times[1:]).any():
        yield Violation("ops-order", "updates must be sorted by time, the newest first")


def names_of_backups(root: Tables) -> Iterator[Violation]:
    """Backups have names of the form of the specification."""
    names = root.children(_UPDATES)[0].vectors(_BACKUP).texts()
    names += root.vectors(_BEFORE).texts()
    for name in filter(None, names):
        if match_backup_name(name) is None:
            yield Violation(
                "backup-name", f"a backup must have the name repo.<14 digits>.<20 characters>, got {name!r}"
            )
            return


RULES: Final = (kinds_of_updates, fields_of_updates, order_of_updates, names_of_backups)
