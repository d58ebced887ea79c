"""The rules for the file ``repo`` and its backups.

Specification: *Repo Info File*.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from frazil.errors import FormatError
from frazil.format import flexbuffer
from frazil.format.envelope import FileType
from frazil.format.flatbuffer import Tables
from frazil.format.metadata_items import read_metadata
from frazil.format.ops_log import Availability
from frazil.format.rules import refs, updates
from frazil.format.rules.headers import violations_of
from frazil.format.rules.violation import Violation, absent_fields, broken

_SPEC_VERSION: Final = 2
_SNAPSHOTS, _STATUS, _METADATA, _CONFIG, _ENABLED, _DISABLED = 4, 5, 6, 9, 10, 11
_FIELDS: Final = {
    1: "tags",
    2: "branches",
    3: "deleted_tags",
    4: "snapshots",
    5: "status",
    7: "latest_updates",
}


def repo_info_violations(data: Any) -> list[Violation]:
    """Return the rules that a file ``repo`` breaks.

    >>> from frazil.format.repo_info import encode_repo_info, new_repo_info
    >>> repo_info_violations(encode_repo_info(new_repo_info(1_700_000_000_000_000)))
    []
    """
    return violations_of(data, FileType.REPO_INFO, _SPEC_VERSION, lambda root, version: broken(_RULES, root))


def _required(root: Tables) -> Iterator[Violation]:
    names = absent_fields(root, _FIELDS)
    for slot, what in ((1, "tag"), (2, "branch")):
        names += [f"{name} of a {what}" for name in absent_fields(root.children(slot)[0], {0: "name"})]
    names += absent_fields(root.children(_SNAPSHOTS)[0], {0: "id of a snapshot", 3: "message of a snapshot"})
    names += absent_fields(root.children(7)[0], {1: "type of an update"})
    if names:
        yield Violation("repo-required", f"these required fields are absent: {', '.join(names)}")


def _version(root: Tables) -> Iterator[Violation]:
    version = int(root.scalars(0, np.uint8)[0])
    if version != _SPEC_VERSION:
        yield Violation("repo-spec-version", f"the field spec_version must be 2, got {version}")


def _status(root: Tables) -> Iterator[Violation]:
    availability = root.tables(_STATUS)[0].scalars(0, np.uint8)
    if (availability > max(Availability)).any():
        number = int(availability.max())
        yield Violation("status-availability", f"the availability must be 0 to 2, got {number}")


def _flags(root: Tables) -> Iterator[Violation]:
    enabled, disabled = (root.numbers(slot, "<u2").values for slot in (_ENABLED, _DISABLED))
    for check, what, ids in (
        ("enabled-flags-sorted", "enabled", enabled),
        ("disabled-flags-sorted", "disabled", disabled),
    ):
        if (ids[:-1] >= ids[1:]).any():
            yield Violation(check, f"the ids of {what} feature flags must be sorted, got {ids.tolist()}")
    both = np.intersect1d(enabled, disabled).tolist()
    if both:
        yield Violation("flags-exclusive", f"feature flags must be enabled or disabled, got both for {both}")


def _values(root: Tables) -> Iterator[Violation]:
    infos = root.children(_SNAPSHOTS)[0]
    for what, tables, slot in (("repository", root, _METADATA), ("snapshots", infos, 4)):
        column = read_metadata(tables, slot, "repo")
        try:
            if not column.is_shared():
                column.load_all()
        except FormatError as error:
            yield Violation(
                "metadata-values", f"the metadata of the {what} cannot be decoded: {error.message}"
            )
    if root.present(_CONFIG)[0]:
        try:
            config = flexbuffer.loads(root.vectors(_CONFIG).bytes(0))
            text = "" if isinstance(config, dict) else f"got {type(config).__name__}"
        except (FormatError, ValueError, IndexError) as error:
            text = str(error)
        if text:
            yield Violation("config-flexbuffer", f"the configuration must be a map in FlexBuffers: {text}")


def _texts(root: Tables) -> Iterator[Violation]:
    infos, ops = root.children(_SNAPSHOTS)[0], root.children(7)[0]
    texts = {
        "names of tags": root.children(1)[0].vectors(0),
        "names of branches": root.children(2)[0].vectors(0),
        "names of deleted tags": root.string_vectors(3)[0],
        "messages": infos.vectors(3),
        "names of backups": ops.vectors(3),
    }
    for what, rows in texts.items():
        try:
            rows.texts()
        except FormatError as error:
            yield Violation("text-utf8", f"{what}: {error.message}")


_RULES: Final = (_required, _version, *refs.RULES, *updates.RULES, _status, _flags, _values, _texts)

__all__ = ["repo_info_violations"]
