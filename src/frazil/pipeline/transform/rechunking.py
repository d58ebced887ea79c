"""Arrays with other chunks, shards or codecs, or with native chunks: `rechunk`, `recompress`, `materialize`.

The blocks are those of a plan (`frazil.pipeline.transform.rechunk_plan`) with one stage, or with two stages
and a temporary array between them. `materialize` copies bytes without decoding them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Unpack

import numpy as np
from zarr.abc.codec import Codec

from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.job_result import JobResult
from frazil.jobs.memory import Budget
from frazil.jobs.run_options import BoundedRunOptions, RunOptions, with_options
from frazil.jobs.versions import Source, Target, Version, takes_versions
from frazil.pipeline.transform.array_arguments import (
    Lengths,
    chunk_lengths,
    codec_documents,
    record_of_lengths,
    require_dimensions,
)
from frazil.pipeline.transform.array_info import (
    ArrayInfo,
    Json,
    Shape,
    Values,
    arrays_below,
    open_array,
    with_companions,
)
from frazil.pipeline.transform.block_job import (
    BlockJob,
    ComputedArrays,
    OutputArrays,
    TransferredArray,
    run_block_job,
)
from frazil.pipeline.transform.chunk_transfer import whole_transfer
from frazil.pipeline.transform.rechunk_plan import Stage, rechunk_plan
from frazil.pipeline.transform.targets import is_in_place, target_or_source
from frazil.repository.session.session import Session

#: The codecs of an old array that an intermediate array has: only serializers, as it is temporary.
_INTERMEDIATE_CODECS: Final = frozenset({"bytes", "vlen-utf8", "vlen-bytes"})


@with_options(BoundedRunOptions)
@takes_versions
def rechunk(
    source: Source,
    paths: Sequence[str],
    chunks: Lengths,
    *,
    shards: Lengths | None = None,
    to: Target | None = None,
    **options: Unpack[BoundedRunOptions],
) -> JobResult:
    """Store arrays in other chunks, in one commit; in place, or at a target.

    Data types, fill values, attributes and codecs do not change, and missing chunks stay missing. If a block
    of the new chunks needs more than ``max_mem``, the job works in two stages.

    Args:
        source: The `Repository` (the tip of its branch ``main``) or the `Version` to read.
        paths: Paths of arrays, or of groups for all arrays below them.
        chunks: The new chunk lengths: one for each axis, or a mapping of dimensions, ``{"time": -1, "lat":
            50}``. -1 is the whole axis. Dimensions that a mapping does not name keep their chunk length.
        shards: The new shard lengths, in the same form. The default, None, makes no shards.
        to: The `Target` of the results. The default, None, replaces the arrays on the branch of the source.
        **options: The options of `frazil.jobs.run_options.BoundedRunOptions`: ``engine``, ``job_id``,
            ``message``, ``progress``, ``max_mem``.

    Returns:
        The `JobResult`, whose ``version`` has the new arrays.

    Raises:
        InvalidInputError: The lengths do not fit an array, or its chunk grid is not regular
            (``invalid-array-metadata``), or ``max_mem`` is too small (``invalid-argument``).
        NodeNotFoundError: A path has no node.
        TypeError: An option is unknown.

    Examples:
        >>> import frazil, zarr
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="slices") as store:
        ...     array = zarr.create_array(store, name="t", shape=(8, 8), chunks=(1, 8), dtype="i4")
        ...     array[:] = 7
        >>> series = frazil.pipeline.rechunk(repo, ["t"], (8, 1), engine="inline")
        >>> zarr.open_array(series.version.session().store, path="t", mode="r").chunks
        (8, 1)
    """
    version = Version.of(source)
    session = version.session()
    arrays = arrays_below(session, paths)
    if isinstance(chunks, Mapping):
        require_dimensions(list(chunks), arrays)

    def layout_of(array: ArrayInfo, path: str) -> ArrayInfo:
        inner = chunk_lengths(chunks, array, array.chunks, "chunks")
        outer = chunk_lengths(shards, array, None, "shards", inner=inner)
        return array.with_layout(path, chunks=inner, shards=outer)

    parameters = {"chunks": record_of_lengths(chunks), "shards": record_of_lengths(shards)}
    return _rewrite("rechunk", version, session, paths, arrays, layout_of, parameters, to, options)


@with_options(BoundedRunOptions)
@takes_versions
def recompress(
    source: Source,
    paths: Sequence[str],
    codecs: Sequence[Codec | Mapping[str, Any]] | None = None,
    *,
    shards: Lengths | None = None,
    to: Target | None = None,
    **options: Unpack[BoundedRunOptions],
) -> JobResult:
    """Store arrays with other codecs, in one commit; in place, or at a target.

    Chunks keep their shape. Otherwise the function works as `rechunk`.

    Args:
        source: The `Repository` (the tip of its branch ``main``) or the `Version` to read.
        paths: Paths of arrays, or of groups for all arrays below them.
        codecs: The codecs of zarr, or their metadata: a whole chain, or, without a serializer, only the
            compressors, such as ``[zarr.codecs.ZstdCodec(level=9)]``. The byte order does not change unless
            the chain has a ``bytes`` codec that names another one (``BytesCodec()`` is little-endian). The
            default, None, keeps the codecs.
        shards: The new shard lengths: one for each axis, or a mapping of dimensions. The default, None, makes
            no shards.
        to: The `Target` of the results. The default, None, replaces the arrays on the branch of the source.
        **options: The options of `frazil.jobs.run_options.BoundedRunOptions`: ``engine``, ``job_id``,
            ``message``, ``progress``, ``max_mem``.

    Returns:
        The `JobResult`, whose ``version`` has the new arrays.

    Raises:
        InvalidInputError: A codec is not a codec of zarr, or the shards do not fit
            (``invalid-array-metadata``), or ``max_mem`` is too small (``invalid-argument``).
        NodeNotFoundError: A path has no node.
        TypeError: An option is unknown.

    Examples:
        >>> import frazil, zarr
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="compressed") as store:
        ...     array = zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4")
        >>> gzip = [zarr.codecs.GzipCodec(level=1)]
        >>> result = frazil.pipeline.recompress(repo, ["t"], gzip, engine="inline")
        >>> zarr.open_array(result.version.session().store, path="t", mode="r").compressors
        (GzipCodec(level=1),)
    """
    version = Version.of(source)
    session = version.session()

    def layout_of(array: ArrayInfo, path: str) -> ArrayInfo:
        return array.with_layout(
            path,
            chunks=array.chunks,
            shards=chunk_lengths(shards, array, None, "shards", inner=array.chunks),
            codecs=codec_documents(codecs, array.codecs),
        )

    parameters = {"codecs": codec_documents(codecs, []), "shards": record_of_lengths(shards)}
    arrays = arrays_below(session, paths)
    return _rewrite("recompress", version, session, paths, arrays, layout_of, parameters, to, options)


def _rewrite(
    name: str,
    version: Version,
    session: Session,
    paths: Sequence[str],
    arrays: Sequence[ArrayInfo],
    layout_of: Callable[[ArrayInfo, str], ArrayInfo],
    parameters: Json,
    to: Target | None,
    options: BoundedRunOptions,
) -> JobResult:
    """Store arrays in other layouts. An array whose layout stays the same is transferred."""
    target, budget = target_or_source(version, to), Budget.of(options.get("max_mem")).size
    if not arrays:
        raise InvalidInputError("paths must name at least one array, got none", ErrorKind.INVALID_ARGUMENT)
    in_place = is_in_place(version, target)
    computed: list[ComputedArrays] = []
    transferred: list[TransferredArray] = []
    temporary: list[ArrayInfo] = []
    for old in arrays:
        new = layout_of(old, target.path(old.path))
        if all(old.document[member] == new.document[member] for member in ("chunk_grid", "codecs")):
            if not in_place:
                transferred.append(TransferredArray(old, new, whole_transfer(old, new)))
            continue
        plan = rechunk_plan(old.shape, old.chunks, new.grid, old.itemsize, budget)
        if plan.intermediate is None:
            computed.append(_copy(old, new, plan.stages[0], 0))
            continue
        seed = f"{version.snapshot_id} {old.path} {new.path}"
        path = target.path(f"frazil-between-{hashlib.sha256(seed.encode()).hexdigest()[:16]}")
        codecs = [each for each in old.codecs if each["name"] in _INTERMEDIATE_CODECS] or old.codecs
        between = old.with_layout(path, chunks=plan.intermediate, codecs=codecs)
        temporary.append(between)
        computed += [_copy(old, between, plan.stages[0], 0), _copy(between, new, plan.stages[1], 1)]
    if not in_place:
        own = {array.path for array in arrays}
        companions = [each for each in with_companions(session, arrays) if each.path not in own]
        transferred += [TransferredArray.whole(each, target.path(each.path)) for each in companions]
    names = [paths] if isinstance(paths, str) else list(paths)
    outputs = OutputArrays(computed, transferred, temporary=temporary)
    parameters = {**parameters, "paths": names, "max_mem": budget}
    job = BlockJob(name, version, session, target, arrays, outputs, parameters, in_place)
    return run_block_job(job, options)


def _copy(old: ArrayInfo, new: ArrayInfo, stage: Stage, number: int) -> ComputedArrays:
    return ComputedArrays(old, (new,), stage.block, _CopiedBlocks(old.path), number, cell=stage.read)


@dataclass(frozen=True, slots=True)
class _CopiedBlocks:
    """Read blocks of an array: see `frazil.pipeline.transform.block_job.Compute`."""

    path: str

    def __call__(self, session: Session, start: Shape, stop: Shape) -> Sequence[Values]:
        return [np.asarray(open_array(session, self.path)[tuple(map(slice, start, stop))])]


@with_options(RunOptions)
@takes_versions
def materialize(
    source: Source,
    paths: Sequence[str] = ("/",),
    *,
    to: Target | None = None,
    **options: Unpack[RunOptions],
) -> JobResult:
    """Copy the bytes of all virtual chunks of arrays into the repository, in one commit.

    In place, only the references of virtual chunks change. At a target, the arrays and their coordinates are
    created; native chunks are shared within one repository, and copied to another one. The bytes of a chunk
    do not change. The new version does not need the files of the virtual references any more; older versions
    still need them.

    Args:
        source: The `Repository` (the tip of its branch ``main``) or the `Version` to read.
        paths: Paths of arrays, or of groups for all arrays below them. The default is all arrays.
        to: The `Target` of the results. The default, None, works in place, on the branch of the source.
        **options: The options of `frazil.jobs.run_options.RunOptions`: ``engine``, ``job_id``, ``message``,
            ``progress``.

    Returns:
        The `JobResult`, whose ``version`` has the native chunks.

    Raises:
        TaskFailedError: A file does not exist, has changed since its references were made
            (``virtual-chunk-modified``), or the repository may not read its location. The kind is the kind of
            the cause.
        NodeNotFoundError: A path has no node.
        TypeError: An option is unknown.

    Examples:
        >>> import frazil, zarr
        >>> from frazil.pipeline import Target, materialize
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="native chunks") as store:
        ...     zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4")[:] = 7
        >>> result = materialize(repo, ["t"], to=Target(repo, group="copy"), engine="inline")
        >>> zarr.open_array(result.version.session().store, path="copy/t", mode="r")[:].tolist()
        [7, 7, 7, 7]
    """
    version = Version.of(source)
    session = version.session()
    target = target_or_source(version, to)
    in_place = is_in_place(version, target)
    arrays = arrays_below(session, paths)
    if not in_place:
        arrays = with_companions(session, arrays)
    outputs = OutputArrays(
        transferred=[TransferredArray.whole(array, target.path(array.path)) for array in arrays]
    )
    parameters = {"paths": [paths] if isinstance(paths, str) else list(paths)}
    job = BlockJob("materialize", version, session, target, arrays, outputs, parameters, in_place, True)
    return run_block_job(job, options)
