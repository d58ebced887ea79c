"""Arguments of operations on arrays (chunk lengths, dimensions, codecs), and values for the job record."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict

import numpy as np
from zarr.abc.codec import ArrayArrayCodec, Codec

from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.run_options import BoundedRunOptions
from frazil.pipeline.transform.array_info import SERIALIZERS, SHARDING, ArrayInfo, Json, Shape

#: Lengths of chunks or shards: one for each axis, or by dimension. -1 is the whole axis.
type Lengths = Sequence[int] | Mapping[str, int]

#: Values with at most this number of elements are recorded in full.
_SHORT: Final = 64


class _Chunks(TypedDict, total=False):
    """The chunks of the results.

    Attributes:
        chunks: The chunk lengths of the results: one for each axis, or a mapping of dimensions. -1 is the
            whole axis. The default, None, keeps the chunk lengths of the source.
    """

    chunks: Lengths | None


class _Grid(_Chunks, total=False):
    """The chunks and shards of the results.

    Attributes:
        shards: The shard lengths of the results, in the same form as ``chunks`` and a multiple of them. The
            default, None, makes no shards.
    """

    shards: Lengths | None


class ChunkRunOptions(_Chunks, BoundedRunOptions, total=False):
    """The options of `BoundedRunOptions`, and the chunks of the results."""


class GridRunOptions(_Grid, BoundedRunOptions, total=False):
    """The options of `ChunkRunOptions`, and the shards of the results."""


def chunk_lengths(
    given: Sequence[int] | Mapping[Any, int] | None,
    array: ArrayInfo,
    default: Shape | None,
    argument: str,
    *,
    inner: Shape | None = None,
) -> Shape | None:
    """Return the shape of chunks or shards of an argument; ``default`` for None.

    A mapping replaces single axes of the default; -1 is the whole axis. ``inner`` are the chunks inside of
    shards: a shard of -1 is rounded up to whole chunks. Raises ``InvalidInputError``
    (``invalid-array-metadata``), which names ``argument``, for a wrong number of lengths and for lengths
    below 1.
    """
    if given is None:
        return default
    out: list[Any]
    if isinstance(given, Mapping):
        out = list(default or inner or array.chunks)
        for name, length in given.items():
            axis = array.axis(name)
            if axis is not None:
                out[axis] = length
    else:
        out = list(given) if isinstance(given, Sequence) else []
    steps = inner or (1,) * len(out)
    whole = [
        -(-max(n, 1) // step) * step if length == -1 else length
        for length, n, step in zip(out, array.shape, steps, strict=False)
    ]
    integers = all(isinstance(length, int | np.integer) for length in whole)
    if len(out) != array.ndim or not integers or any(length < 1 for length in whole):
        raise InvalidInputError(
            f"{argument} must be {array.ndim} lengths of at least 1 (or -1) for `{array.path}`, got {given}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    return tuple(map(int, whole))


def clipped_chunks(chunks: Shape, shape: Sequence[int]) -> Shape:
    """Return chunks that are no longer than an array of this shape, and at least 1 long.

    >>> clipped_chunks((4, 4), (9, 0))
    (4, 1)
    """
    return tuple(max(min(chunk, n), 1) for chunk, n in zip(chunks, shape, strict=True))


def require_dimensions(names: Sequence[Any], arrays: Sequence[ArrayInfo]) -> None:
    """Raise ``InvalidInputError`` for a dimension that no array has."""
    for name in names:
        if all(array.axis(name) is None for array in arrays):
            dims = ", ".join(sorted({str(dim) for array in arrays for dim in array.dims if dim}))
            raise InvalidInputError(
                f"A dimension must be one of the arrays' ({dims or 'none has a name'}), got {name!r}",
                ErrorKind.INVALID_ARRAY_METADATA,
            )


def codec_documents(given: Sequence[Codec | Mapping[str, Any]] | None, old: list[Json]) -> list[Json] | None:
    """Return a chain of codecs as metadata. A chain without a serializer gets the one of ``old``.

    A ``bytes`` codec without a byte order gets the old byte order. Raises ``InvalidInputError`` for a value
    that is neither a codec of zarr nor its metadata.
    """
    if given is None:
        return None
    if not all(isinstance(each, Codec | Mapping) for each in given):
        raise InvalidInputError(
            f"codecs must be zarr codecs or their metadata, got {given!r}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    chain = [dict(each) if isinstance(each, Mapping) else dict(each.to_dict()) for each in given]
    chain = [_with_byte_order(each, old) for each in chain]
    if any(each["name"] in SERIALIZERS or each["name"] == SHARDING for each in chain):
        return chain
    serializers = [each for each in old if each["name"] in SERIALIZERS]
    filters = [each for each, codec in zip(chain, given, strict=True) if _is_filter(each, codec)]
    return [*filters, *serializers, *(each for each in chain if each not in filters)]


def _with_byte_order(document: Json, old: list[Json]) -> Json:
    serializer = next((each for each in old if each["name"] == "bytes"), None)
    if document["name"] != "bytes" or serializer is None:
        return document
    return {**serializer, **document}


def _is_filter(document: Json, codec: Codec | Mapping[str, Any]) -> bool:
    """Return whether a codec makes arrays of arrays, and so comes before the serializer."""
    return isinstance(codec, ArrayArrayCodec) or document["name"] == "transpose"


def record_of(value: Any) -> Any:
    """Return a value for the parameters of a job, as JSON; long values as their size, ends and hash.

    >>> record_of(slice(3, "b")), record_of([1, 2]), record_of(range(1000))["size"]
    (['3', 'b', 'None'], [1, 2], 1000)
    """
    if isinstance(value, slice):
        return [str(value.start), str(value.stop), str(value.step)]
    values = np.asarray(value)
    if values.size <= _SHORT:
        return values.tolist() if values.dtype.kind in "iufb" else values.astype(str).tolist()
    content = values.tobytes() if values.dtype.kind != "O" else repr(values.tolist()).encode()
    return {
        "size": values.size,
        "first": record_of(values.flat[0]),
        "last": record_of(values.flat[-1]),
        "sha256": hashlib.sha256(content).hexdigest()[:24],
    }


def record_of_lengths(given: Lengths | None) -> Any:
    """Return the argument ``chunks`` or ``shards`` for the parameters of a job, as JSON."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        return {str(dim): length for dim, length in given.items()}
    return list(given) if isinstance(given, Sequence) else str(given)
