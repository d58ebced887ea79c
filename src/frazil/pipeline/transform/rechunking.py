"""Arrays with other chunks, shards or codecs: `rechunk` and `recompress`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from zarr.abc.codec import Codec

from frazil.jobs.job_result import JobResult
from frazil.jobs.run_options import BoundedRunOptions, with_options
from frazil.jobs.versions import Source, Target, Version, takes_versions
from frazil.pipeline.transform.array_arguments import (
    Lengths,
    chunk_lengths,
    codec_documents,
    record_of_lengths,
    require_dimensions,
)
from frazil.pipeline.transform.array_info import ArrayInfo, arrays_below
from frazil.pipeline.transform.rewrite_job import Rewrite, run_rewrite


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
    rewrite = Rewrite("rechunk", version, session, paths, arrays, layout_of, parameters)
    return run_rewrite(rewrite, to, options)


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
    rewrite = Rewrite("recompress", version, session, paths, arrays, layout_of, parameters)
    return run_rewrite(rewrite, to, options)
