"""Arrays with other chunks, shards or codecs: `rechunk` and `recompress`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from zarr.abc.codec import Codec

from frazil.jobs.job_result import JobResult
from frazil.jobs.run_options import BoundedRunOptions, Run, with_options
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
    """Give arrays other chunks, in one commit; in place, or at the target ``to``.

    ``paths`` are arrays, or groups for all arrays below. ``chunks`` is a tuple for arrays of that many
    dimensions, or a mapping of dimension names, ``{"time": -1, "lat": 50}``: -1 is the whole axis, and other
    dimensions keep their chunk length. ``shards`` likewise; without it the new arrays have none. ``max_mem``
    bounds the memory for the values of one task (256 MB by default); if a block of the new chunks needs more,
    the job works in two stages. Data types, fill values, attributes and codecs stay; a chunk that does not
    exist does not exist afterwards.

    Raises ``InvalidInputError`` for a shape that does not fit, for too little ``max_mem``, and for a
    rectilinear grid; ``NodeNotFoundError`` for a path without a node.

    >>> import frazil, zarr
    >>> from frazil.pipeline import Inline, rechunk
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> with repo.transaction("main", message="slices") as store:
    ...     array = zarr.create_array(store, name="t", shape=(8, 8), chunks=(1, 8), dtype="i4")
    ...     array[:] = 7
    >>> series = rechunk(repo, ["t"], (8, 1), engine=Inline())
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
    return run_rewrite(rewrite, to, Run(**options))


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
    """Store arrays with other codecs, in one commit; chunks keep their shape.

    ``codecs`` are zarr codecs, or their metadata: a whole chain, or, without a serializer, only the
    compressors, ``[zarr.codecs.ZstdCodec(level=9)]``; None keeps the codecs. The byte order stays unless the
    chain has a ``bytes`` codec that names another one (``BytesCodec()`` means little-endian). With ``shards``
    the new arrays have shards of these lengths, without it they have none. Otherwise as `rechunk`.

    >>> import frazil, zarr
    >>> from frazil.pipeline import Inline, recompress
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> with repo.transaction("main", message="compressed") as store:
    ...     array = zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4")
    >>> result = recompress(repo, ["t"], [zarr.codecs.GzipCodec(level=1)], engine=Inline())
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
    return run_rewrite(rewrite, to, Run(**options))
