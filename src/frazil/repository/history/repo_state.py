"""The state of a repository that its updates change, as a table of fields, and the differences of two states.

A field is a branch, a tag, the saved configuration, one item of the metadata, a feature flag, or the status.
The list of snapshots is not a field: undo changes no data, only what the names refer to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from frazil.format.ids import id_to_text
from frazil.format.repo_info import RepoInfo
from frazil.repository.catalog.protection import PROTECTION
from frazil.repository.history.undo_record import OWN_PREFIX
from frazil.repository.settings.feature_flags import FLAGS


class Part(StrEnum):
    """The kinds of fields of a repository."""

    BRANCH = "branch"
    TAG = "tag"
    CONFIG = "configuration"
    METADATA = "metadata"
    FLAG = "feature flag"
    STATUS = "status"


type Field = tuple[Part, str]

#: The fields whose value is a snapshot.
REFS: Final = frozenset({Part.BRANCH, Part.TAG})


@dataclass(frozen=True, slots=True)
class FieldChange:
    """The change of one field. A value of None means that the field does not exist.

    The values of branches and tags are ids. The value of an item of the metadata is a tuple with one value.
    """

    part: Part
    name: str
    before: Any
    after: Any

    @property
    def field(self) -> Field:
        """The kind and the name of the field."""
        return (self.part, self.name)

    @property
    def subject(self) -> str:
        """The field in words, such as "branch `main`"."""
        return f"{self.part} `{self.name}`" if self.name else str(self.part)


def fields_of(info: RepoInfo) -> dict[Field, Any]:
    """Return all fields of a repository that have a value."""
    flags = {flag.id: flag.name for flag in FLAGS}
    fields: dict[Field, Any] = {(Part.BRANCH, name): id_ for name, id_ in info.branches.items()}
    fields |= {(Part.TAG, name): id_ for name, id_ in info.tags.items()}
    fields |= {(Part.METADATA, name): (value,) for name, value in info.metadata.items() if not is_own(name)}
    for setting, ids in ((True, info.enabled_flags), (False, info.disabled_flags)):
        fields |= {(Part.FLAG, flags.get(id_, str(id_))): setting for id_ in ids}
    if info.config is not None:
        fields[Part.CONFIG, ""] = info.config
    fields[Part.STATUS, ""] = (info.status.availability, info.status.reason)
    return fields


def is_own(name: str) -> bool:
    """Return whether an item of the metadata belongs to Frazil, which writes it with other updates."""
    return name.startswith(OWN_PREFIX) and name != PROTECTION


def changes_between(before: Mapping[Field, Any], after: Mapping[Field, Any]) -> list[FieldChange]:
    """Return the changes from one state to another."""
    fields = dict.fromkeys([*before, *after])
    return [
        FieldChange(*field, before.get(field), after.get(field))
        for field in fields
        if before.get(field) != after.get(field)
    ]


def shown_value(part: Part, value: Any) -> str | None:
    """Return the value of a field as text. None means that the field does not exist."""
    if value is None:
        return None
    match part:
        case Part.BRANCH | Part.TAG:
            return id_to_text(value)
        case Part.METADATA:
            return repr(value[0])
        case Part.STATUS:
            availability, reason = value
            name = availability.name.lower().replace("_", "-")
            return name if reason is None else f"{name}: {reason}"
        case _:
            return repr(value)
