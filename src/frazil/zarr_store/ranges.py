"""The byte requests of zarr as half-open ranges, limited to the size of the value."""

from __future__ import annotations

from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, SuffixByteRequest

from frazil.errors import ErrorKind, InvalidInputError


def span(request: ByteRequest | None, size: int) -> tuple[int, int]:
    """Return the first byte and the end of a request for a value of ``size`` bytes.

    The range is empty if the request begins after the end of the value.
    """
    match request:
        case None:
            return 0, size
        case RangeByteRequest(start, stop):
            least = min(start, stop)
        case OffsetByteRequest(start):
            stop, least = size, start
        case SuffixByteRequest(suffix):
            start, stop, least = max(size - suffix, 0), size, suffix
        case _:
            raise _invalid_request(request)
    if least < 0:
        raise _invalid_request(request)
    stop = min(stop, size)
    return min(start, stop), stop


def _invalid_request(request: object) -> InvalidInputError:
    return InvalidInputError(
        "byte_range must be a RangeByteRequest, OffsetByteRequest or SuffixByteRequest without negative "
        f"numbers. Unexpected byte_range, got {request!r}",
        ErrorKind.INVALID_BYTE_RANGE,
    )
