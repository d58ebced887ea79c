"""zarr's byte requests as half-open spans, clamped to the value that they are cut from."""

from __future__ import annotations

from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, SuffixByteRequest

from frazil.errors import ErrorKind, InvalidInputError


def span(request: ByteRequest | None, size: int) -> tuple[int, int]:
    """First byte and the one after the last, for a value of ``size`` bytes; an empty span past its end.

    Raises ``InvalidInputError`` (``invalid-byte-range``) for negative numbers and what is no request.

    >>> span(RangeByteRequest(2, 100), 10), span(OffsetByteRequest(4), 10), span(SuffixByteRequest(3), 10)
    ((2, 10), (4, 10), (7, 10))
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
            raise _invalid(request)
    if least < 0:
        raise _invalid(request)
    stop = min(stop, size)
    return min(start, stop), stop


def _invalid(request: object) -> InvalidInputError:
    return InvalidInputError(
        f"Unexpected byte_range, got {request!r}: expected a RangeByteRequest, OffsetByteRequest or "
        "SuffixByteRequest of numbers that are not negative",
        ErrorKind.INVALID_BYTE_RANGE,
    )
