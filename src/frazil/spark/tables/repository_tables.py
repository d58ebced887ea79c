"""The tables about a repository: for Spark, SQL, or pyarrow.

    snapshots   every snapshot of a branch or tag                 history   those of one ref, newest first
    refs        branches and tags                                 ops       every update of the repository
    nodes       groups and arrays of one version                  arrays    arrays: shape, chunks, types
    manifests   files of references of one version                chunks    every reference of one version
    regions     how full arrays are, or slabs of them             storage   bytes by kind of file
    changes     changes from one version to another

Each is a function of a repository that returns a ``pyarrow.Table`` with the schema in ``SCHEMAS``. It needs
no Spark. Versions are named as in ``Repository.readonly_session``; the default is the tip of ``main``.
No loop runs over chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

from frazil.repository.handle.repository import Repository
from frazil.spark.tables import location
from frazil.spark.tables.change_table import changes
from frazil.spark.tables.content_tables import arrays, chunks, manifests, nodes
from frazil.spark.tables.location import Options
from frazil.spark.tables.repository_schemas import SCHEMAS, schema_of
from frazil.spark.tables.snapshot_tables import history, ops, refs, snapshots
from frazil.spark.tables.usage_tables import regions, storage

__all__ = [
    "SCHEMAS",
    "arrays",
    "changes",
    "chunks",
    "history",
    "manifests",
    "nodes",
    "ops",
    "refs",
    "regions",
    "schema_of",
    "snapshots",
    "storage",
    "table",
]


def table(repo: Repository, options: Options) -> pa.Table:
    """Return the table that the options name, of the version that they name."""
    schema_of(options["table"])
    return _BY_OPTIONS[options["table"]](repo, options)


def _of_version(table_of: Callable[..., pa.Table], *names: str) -> Callable[[Repository, Options], pa.Table]:
    def call(repo: Repository, options: Options) -> pa.Table:
        id_ = location.session_at(repo, options).snapshot_id
        return table_of(repo, snapshot_id=id_, **{name: options[name] for name in names if name in options})

    return call


def _between(repo: Repository, options: Options) -> pa.Table:
    end = options.get("end") or location.session_at(repo, options).snapshot_id
    return changes(repo, options.get("start"), end)


_BY_OPTIONS: Final[dict[str, Callable[[Repository, Options], pa.Table]]] = {
    "snapshots": lambda repo, options: snapshots(repo),
    "history": _of_version(history),
    "refs": lambda repo, options: refs(repo),
    "ops": lambda repo, options: ops(repo),
    "nodes": _of_version(nodes),
    "arrays": _of_version(arrays),
    "manifests": _of_version(manifests),
    "chunks": _of_version(chunks, "array"),
    "regions": _of_version(regions, "array", "slab"),
    "storage": lambda repo, options: storage(repo),
    "changes": _between,
}
