"""All functions of SQL that change or check a repository."""

from __future__ import annotations

from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

from frazil.spark.functions import ref_functions, storage_functions
from frazil.spark.functions.upkeep_function import Argument, Kind, UpkeepFunction
from frazil.spark.tables.repository_schemas import NUMBERS

_TEXT: Final = pa.string()
_TEXTS: Final = pa.list_(pa.string())
_COUNT: Final = pa.int64()
_OLDER_THAN: Final = Argument("older_than", Kind.TIME)
_BRANCH: Final = Argument("branch", default="main")


def _schema(**fields: pa.DataType) -> pa.Schema:
    return pa.schema(list(fields.items()))


#: The functions. Those that delete make a dry run, unless the caller sets ``dry_run => false``.
UPKEEP: Final[tuple[UpkeepFunction, ...]] = (
    UpkeepFunction(
        "frazil_expire",
        (
            _OLDER_THAN,
            Argument("dry_run", Kind.FLAG, True),
            Argument("delete_branches", Kind.FLAG, False),
            Argument("delete_tags", Kind.FLAG, False),
        ),
        _schema(kind=_TEXT, name=_TEXT, message=_TEXT, removed=pa.bool_()),
        storage_functions.expire,
    ),
    UpkeepFunction(
        "frazil_collect",
        (_OLDER_THAN, Argument("dry_run", Kind.FLAG, True)),
        _schema(dry_run=pa.bool_(), **dict.fromkeys(storage_functions.COLLECTED, _COUNT)),
        storage_functions.collect,
    ),
    UpkeepFunction(
        "frazil_compact",
        (_BRANCH, Argument("dry_run", Kind.FLAG, False), Argument("message", default="Merge chunk files")),
        _schema(
            dry_run=pa.bool_(),
            files=_COUNT,
            new_files=_COUNT,
            bytes_moved=_COUNT,
            bytes_freed=_COUNT,
            manifests=_COUNT,
            new_manifests=_COUNT,
            snapshot_id=_TEXT,
        ),
        storage_functions.compact,
    ),
    UpkeepFunction(
        "frazil_rewrite_manifests",
        (_BRANCH, Argument("message", default="Rewrite the manifests")),
        _schema(branch=_TEXT, snapshot_id=_TEXT, done_before=pa.bool_()),
        storage_functions.rewrite_manifests,
        storage_functions.pin_of_rewrite,
    ),
    UpkeepFunction(
        "frazil_rollback",
        (Argument("branch"), Argument("to")),
        _schema(branch=_TEXT, previous_snapshot_id=_TEXT, snapshot_id=_TEXT, done_before=pa.bool_()),
        ref_functions.rollback,
        ref_functions.pin_of_rollback,
    ),
    UpkeepFunction(
        "frazil_tag",
        (Argument("name"), Argument("version", default="main")),
        _schema(tag=_TEXT, snapshot_id=_TEXT, done_before=pa.bool_()),
        ref_functions.tag,
        ref_functions.pin_of_tag,
    ),
    UpkeepFunction(
        "frazil_publish",
        (Argument("branch"), Argument("onto", default="main"), Argument("tag", default=None)),
        _schema(branch=_TEXT, snapshot_id=_TEXT, tag=_TEXT, done_before=pa.bool_()),
        ref_functions.publish_branch,
        ref_functions.pin_of_publish,
    ),
    UpkeepFunction(
        "frazil_copy",
        (Argument("target"), Argument("target_options", default="")),
        _schema(objects=_COUNT, bytes=_COUNT, existing=_COUNT),
        storage_functions.copy,
    ),
    UpkeepFunction(
        "frazil_verify",
        (Argument("level", default="metadata"),),
        _schema(
            severity=_TEXT,
            check=_TEXT,
            key=_TEXT,
            path=_TEXT,
            coordinates=NUMBERS,
            detail=_TEXT,
            action=_TEXT,
            arrays=_TEXTS,
            branches=_TEXTS,
            tags=_TEXTS,
            snapshots=_COUNT,
        ),
        storage_functions.verify,
    ),
)
