"""Exports of a version that other libraries read: a plain Zarr store, a zip file, a NetCDF file.

Chunks are copied without decoding. The document of the root group is written last.
"""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from collections.abc import Buffer, Iterator, Sequence
from contextlib import contextmanager
from itertools import compress, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from frazil.argument_docs import with_argument_docs
from frazil.arguments import misfit
from frazil.errors import AlreadyExistsError, ConflictError, ErrorKind, IcechunkError, InvalidInputError
from frazil.format.manifest import ChunkTable
from frazil.geozarr import CONVENTIONS
from frazil.handle.repository import Repository
from frazil.jobs.blocks import groups
from frazil.jobs.engine import Engine, EngineName, engine_of, task_bytes
from frazil.jobs.job import Source, Version, takes_versions
from frazil.jobs.progress import Progress
from frazil.jobs.task_failures import dumps
from frazil.pipeline.replication.operation import (
    AT_ONCE,
    BYTES_PER_OBJECT,
    BYTES_PER_TASK,
    CopySummary,
    read_stored,
)
from frazil.pipeline.replication.part import nodes_of_arrays
from frazil.remedies import argument
from frazil.repository.paths import HIDDEN, absolute
from frazil.repository.session.session import Session
from frazil.storage.base import Storage
from frazil.threads import Purpose, thread_pool
from frazil.zarr_store.references import chunk_keys, document_keys


@takes_versions
def export_netcdf(
    source: Source,
    path: str | Path,
    *,
    group: str = "/",
    variables: Sequence[str] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write the arrays of a group as a NetCDF file, with their coordinates and attributes.

    The values are those that ``xarray.open_zarr`` reads, and the encoding is that of ``Dataset.to_netcdf``.
    Attributes that NetCDF does not have, such as objects, become JSON texts. With dask, xarray writes chunk
    by chunk; without, each variable must fit into memory. The file gets its name when it is complete.

    Args:
        source: The `Repository` (the tip of its branch ``main``) or the `Version` to read.
        path: The file, in a folder that exists.
        group: The path of the group. Default: the root group.
        variables: The names of data variables. Default: all variables.
        overwrite: Whether an existing file is replaced. Default: False.

    Returns:
        The path of the file.

    Raises:
        AlreadyExistsError: The file exists (``not-allowed``).
        InvalidInputError: The path is one of an array, or the group does not have one of the variables
            (``invalid-argument``). ``invalid-array-metadata`` if an array has no names of dimensions, or if
            xarray cannot write the values.
        NodeNotFoundError: There is no such group.

    Examples:
        >>> import frazil, xarray as xr
        >>> from frazil.pipeline import export_netcdf
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="an array") as store:
        ...     data = xr.Dataset({"t": ("time", [1.0, 2.0])})
        ...     stored = data.to_zarr(store, consolidated=False, zarr_format=3)
        >>> file = export_netcdf(repo, "export.nc")
        >>> xr.load_dataset(file)["t"].values.tolist()
        [1.0, 2.0]
    """
    file = new_file(path, overwrite=overwrite)
    session = Version.of(source).session()
    nodes, prefix = session.workspace, absolute(group).rstrip("/")
    if nodes.require_node(prefix or "/").array is not None:
        above, _, array_name = prefix.rpartition("/")
        raise InvalidInputError(
            f"a NetCDF file has the arrays of a group, and `{prefix}` is an array"
        ).with_remedy(
            "Pass {} and {}",
            argument(group=above or "/"),
            argument(variables=[array_name]),
            shell=f"Export its group `{above or '/'}`",
        )
    for child in nodes.children(prefix or "/"):
        array = nodes.require_node(f"{prefix}/{child}").array
        if array is not None and array.shape and array.dimension_names is None:
            raise misfit(
                f"`{prefix}/{child}` must have names of its dimensions for a NetCDF file, got none. Write it "
                "with dimension_names, or export a Zarr store"
            )
    name = group.strip("/") or None
    with xr.open_zarr(session.store, group=name, consolidated=False) as dataset:
        names = list(dataset.data_vars) if variables is None else list(variables)
        if absent := [each for each in names if each not in dataset]:
            raise InvalidInputError(
                f"variables must be variables of the group `{group}`, got {absent[0]!r}. It has "
                f"{', '.join(map(str, dataset.data_vars))}"
            )
        chosen = dataset[names]
        for each in (chosen, *chosen.variables.values()):
            each.attrs.pop(CONVENTIONS, None)  # names of Zarr attributes, which the file does not have
            each.attrs = {key: _netcdf_attribute(value) for key, value in each.attrs.items()}
        for variable in chosen.variables.values():
            variable.encoding = _netcdf_encoding(variable)
        with named_when_complete(file) as part:
            try:
                chosen.to_netcdf(part)
            except IcechunkError:
                raise
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                raise misfit(
                    f"the group `{group}` must have data that xarray can write to NetCDF, got "
                    f"{type(error).__name__}: {error}. Leave a variable out, or export a Zarr store"
                ) from error
    return file


def _netcdf_attribute(value: Any) -> Any:
    """Return an attribute that NetCDF has: numbers, texts, or lists of one of them. Others become JSON."""
    values = value if isinstance(value, list | tuple) else [value]
    is_text = all(isinstance(each, str) for each in values)
    is_number = all(
        isinstance(each, np.generic | np.ndarray | float)
        or (isinstance(each, int) and not isinstance(each, bool) and -(2**63) <= each < 2**64)
        for each in values
    )
    return value if values and (is_text or is_number) else json.dumps(value, default=str)


def _netcdf_encoding(variable: xr.Variable) -> dict[str, Any]:
    """Return an encoding with which xarray writes the values that it has read."""
    encoding, fill = dict(variable.encoding), variable.encoding.get("_FillValue")
    is_unsigned = {"true": True, "false": False}.get(str(encoding.get("_Unsigned", "")).lower())
    dtype = np.dtype(encoding.get("dtype", variable.dtype))
    if fill is None and is_unsigned is not None and dtype.kind in "iu":  # xarray applies it with a fill value
        del encoding["_Unsigned"]
        encoding["dtype"] = np.dtype(f"{'u' if is_unsigned else 'i'}{dtype.itemsize}")
    markers = np.asarray(encoding.get("missing_value", fill)).ravel().tolist()
    if fill is not None and any(each != fill and each == each for each in markers):
        del encoding["missing_value"]  # both mean a missing value, and xarray writes only one of them
    return encoding


def new_file(path: str | Path, *, overwrite: bool) -> Path:
    """Return the path of a file that an export may write."""
    file = Path(path)
    if file.exists() and not overwrite:
        raise AlreadyExistsError(f"path must be a new file, got {file}", ErrorKind.NOT_ALLOWED).with_remedy(
            "Pass {} to replace it", argument(overwrite=True)
        )
    return file


@contextmanager
def named_when_complete(file: Path) -> Iterator[Path]:
    """Yield the path of a partial file, which gets its name at the end of the block, or is deleted."""
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


@takes_versions
def export_zarr(
    source: Source,
    target: Storage,
    *,
    arrays: Sequence[str] = ("*",),
    compare: bool = True,
    engine: Engine | EngineName | None = None,
    progress: Progress | None = None,
) -> CopySummary:
    """Write a version as a plain Zarr v3 store, without its history.

    The values do not change, and chunks are not decoded. The store needs neither Frazil nor the files of
    virtual chunks. A second call continues an export that was interrupted, and brings it up to date if the
    metadata of the nodes are the same.

    Args:
        source: The `Repository` (the tip of its branch ``main``) or the `Version` to read.
        target: The storage of the Zarr store: a folder, or a prefix of a bucket.
        arrays: Patterns of the paths of arrays, as in ``fnmatch``, with the groups above them. Default: all
            groups and arrays, except the groups ``.frazil``, in which an ingest records its files.
        compare: Whether chunks that the target has already are read and compared. Otherwise chunks of the
            same size count as equal. Default: True.
        engine: Where tasks run: an `Engine`, or ``"inline"``, ``"threads"``, ``"processes"``, ``"spark"`` or
            ``"sail"``. The default, None, is Spark where Spark is in use, else processes of this machine
            (`default_engine`).
        progress: A `Progress`, which shows how many chunks and bytes are copied. The default, None, shows
            nothing.

    Returns:
        The number of objects and bytes that were written, as `CopySummary`.

    Raises:
        ConflictError: The target is a repository, or it has a Zarr node with other metadata at one of the
            paths (``not-allowed``).
        TaskFailedError: A chunk cannot be read. The kind is the kind of the cause.

    Examples:
        >>> import frazil, zarr
        >>> from frazil.pipeline import export_zarr
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="an array") as store:
        ...     zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4")[:] = 7
        >>> storage = frazil.in_memory_storage()
        >>> exported = export_zarr(repo, storage, engine="inline")
        >>> sorted(each.key for each in storage.list(""))
        ['t/c/0', 't/c/1', 't/zarr.json', 'zarr.json']
    """
    version = Version.of(source)
    session = version.session()
    documents = documents_of(session, arrays)
    _require_same_documents(target, documents)
    total = CopySummary(0, 0, 0)
    shared = dumps((session, target, compare))
    items = list(map(dumps, _items(session, documents, engine)))
    for result in engine_of(engine).run(export_chunks, items, shared):
        part: CopySummary = pickle.loads(result)
        total += part
        if progress is not None:
            progress.advance(chunks=part.objects, bytes=part.bytes)
    count, size = 0, 0
    for path, (document, _) in documents.items():
        if read_stored(target, _document_key(path)) is None:
            target.put(_document_key(path), document)
            count, size = count + 1, size + len(document)
    return total + CopySummary(count, size, len(documents) - count)


@takes_versions
@with_argument_docs(export_netcdf)
def export_zip(
    source: Source,
    path: str | Path,
    *,
    arrays: Sequence[str] = ("*",),
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Write a version as a plain Zarr v3 store in one zip file, which ``zarr.storage.ZipStore`` reads.

    The chunks are copied without decoding, one after the other. The file gets its name when it is complete.

    Args:
        arrays: Patterns of the paths of arrays, as in `export_zarr`.
        progress: A `Progress`, which shows how many chunks and bytes are copied. The default, None, shows
            nothing.

    Returns:
        The path of the file.

    Raises:
        AlreadyExistsError: The file exists (``not-allowed``).

    Examples:
        >>> import frazil, zarr
        >>> from frazil.pipeline import export_zip
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="an array") as store:
        ...     zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4")[:] = 7
        >>> file = export_zip(repo, "t.zarr.zip")
        >>> zarr.open_array(zarr.storage.ZipStore(file, read_only=True), path="t")[:].tolist()
        [7, 7, 7, 7]
    """
    file = new_file(path, overwrite=overwrite)
    session = Version.of(source).session()
    documents = documents_of(session, arrays)
    with named_when_complete(file) as part, zipfile.ZipFile(part, "x") as archive:
        for array, first, end in _items(session, documents, "inline"):
            table = session.chunk_table(array).select_chunks(slice(first, end))
            keys = chunk_keys(array, table.index)
            for start, stop in pairwise(groups(table.length.astype(np.int64), AT_ONCE).tolist()):
                data = _contents(session, table, range(start, stop))
                for key, content in zip(keys[start:stop], data, strict=True):
                    archive.writestr(zipfile.ZipInfo(key), bytes(content))
                if progress is not None:
                    progress.advance(chunks=stop - start, bytes=int(table.length[start:stop].sum()))
        for each, (document, _) in documents.items():
            archive.writestr(zipfile.ZipInfo(_document_key(each)), document)
    return file


def _document_key(path: str) -> str:
    [key] = document_keys([path])
    return key


#: The metadata of each node by path, and whether it is an array.
type Documents = dict[str, tuple[bytes, bool]]


def documents_of(session: Session, arrays: Sequence[str]) -> Documents:
    """Return the metadata of the nodes, deepest nodes first. Chunks must have the default keys."""
    nodes = nodes_of_arrays(session.workspace.node_table(), arrays)
    rows = zip(nodes.paths_list(), nodes.user_data.blobs(), nodes.is_array.tolist(), strict=True)
    by_path = {
        path: (document, is_array) for path, document, is_array in rows if HIDDEN not in path.split("/")
    }
    for path, (document, is_array) in by_path.items():
        encoding = json.loads(document).get("chunk_key_encoding") if is_array else None
        separator = ((encoding or {}).get("configuration") or {}).get("separator", "/")
        if encoding and (encoding.get("name"), separator) != ("default", "/"):
            raise InvalidInputError(
                f"`{path}` must have the chunk key encoding 'default' with the separator '/', got {encoding}",
                ErrorKind.NOT_ALLOWED,
            )
    return dict(sorted(by_path.items(), key=lambda pair: (-pair[0].rstrip("/").count("/"), pair[0])))


def _require_same_documents(target: Storage, documents: Documents) -> None:
    """Raise ``ConflictError`` if the target is a repository, or has other nodes at the paths."""
    if Repository.exists(target):
        raise ConflictError(
            message="target must be empty or have an earlier export of the same nodes, got the repository "
            f"in {target.label()}. Export to another storage",
            kind=ErrorKind.NOT_ALLOWED,
        )
    for path, (document, _) in documents.items():
        key = _document_key(path)
        stored = read_stored(target, key)
        try:
            is_same = stored is None or json.loads(bytes(stored)) == json.loads(document)
        except (ValueError, RecursionError):
            is_same = False
        if not is_same:
            raise ConflictError(
                message=f"target must be empty or have an earlier export of the same nodes, got "
                f"{target.label()} with other metadata in {key}. Export to another storage",
                kind=ErrorKind.NOT_ALLOWED,
            )


# Chunks


def _items(
    session: Session, documents: Documents, engine: Engine | EngineName | None
) -> Iterator[tuple[str, int, int]]:
    """Yield the rows of the chunk tables of arrays: the path, the start and the stop."""
    paths = [path for path, (_, is_array) in documents.items() if is_array]
    sizes = [session.chunk_table(path).length.astype(np.int64) + BYTES_PER_OBJECT for path in paths]
    task = task_bytes(sum(int(each.sum()) for each in sizes), BYTES_PER_TASK, engine)
    for path, each in zip(paths, sizes, strict=True):
        yield from ((path, start, stop) for start, stop in pairwise(groups(each, task)))


def export_chunks(shared: bytes, item: bytes) -> bytes:
    """Write chunks of an array as objects of a Zarr store: the task."""
    session, target, compare = pickle.loads(shared)
    path, first, end = pickle.loads(item)
    table = session.chunk_table(path).select_chunks(slice(first, end))
    keys = chunk_keys(path, table.index)
    total = CopySummary(0, 0, 0)
    for start, stop in pairwise(groups(table.length.astype(np.int64), AT_ONCE).tolist()):
        total += _export_rows(session, target, table, keys, range(start, stop), compare)
    return pickle.dumps(total)


def _contents(session: Session, table: ChunkTable, rows: Sequence[int]) -> Sequence[Buffer]:
    """Return the bytes of the chunks of some rows, none of which is absent."""
    requests: list[Any] = [(table.ref(row), 0, None) for row in rows]
    return session.workspace.reader.read_many(requests)


def _export_rows(
    session: Session, target: Storage, table: ChunkTable, keys: Sequence[str], rows: range, compare: bool
) -> CopySummary:
    """Write the chunks of some rows that the target does not have, or has with other bytes."""
    lengths = table.length.tolist()

    def is_absent(row: int) -> bool:
        info = target.head(keys[row])
        return info is None or info.size != lengths[row]

    def is_new(absent: bool, row: int, content: Buffer) -> bool:
        return absent or memoryview(target.get(keys[row])) != memoryview(content)

    with thread_pool(Purpose.CHUNK_COPIES) as threads:
        absent = list(threads.map(is_absent, rows))
        chosen = [row for row, is_one in zip(rows, absent, strict=True) if is_one or compare]
        data = _contents(session, table, chosen)
        news = threads.map(is_new, [absent[row - rows.start] for row in chosen], chosen, data)
        objects = list(compress(zip([keys[row] for row in chosen], data, strict=True), news))
        target.put_many(objects)
    size = sum(memoryview(content).nbytes for _, content in objects)
    return CopySummary(len(objects), size, len(rows) - len(objects))
