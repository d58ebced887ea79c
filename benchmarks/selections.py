"""The workloads that read a whole array and single points, with the readers of Frazil."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from file_readers import PLAIN_FILES, ZARRISTA
from workload import BOTH, FRAZIL, Workload

PEERS: Final = (*BOTH, "LocalStore", "tensorstore", ZARRISTA, PLAIN_FILES)
HANDLE, BULK = "handle", "bulk"
_SIZES: Final[dict[str, dict[str, Any]]] = {
    "4,096 chunks of 16 KiB": {"chunks": 4096, "chunk_kib": 16},
    "256 chunks of 1 MiB": {"chunks": 256, "chunk_kib": 1024},
}
_NAMES: Final = {HANDLE: "frazil.Array", BULK: "frazil.zarr_pipeline"}
#: By the KiB of a chunk, its codec and the reader: the peer of the first ratio, and its largest values.
_TARGETS: Final[dict[tuple[int, str, str], tuple[str, dict[str, float]]]] = {
    (16, "none", HANDLE): ("tensorstore", {"read, s": 0.5, "read a point, us": 1.2}),
    (16, "zstd", HANDLE): ("tensorstore", {"read, s": 1.0, "read a point, us": 1.2}),
    (16, "none", BULK): ("LocalStore", {"read, s": 1.0, "read a point, us": 1.0}),
    (16, "zstd", BULK): ("LocalStore", {"read, s": 1.0, "read a point, us": 1.0}),
    (1024, "none", HANDLE): (PLAIN_FILES, {"read, s": 1.1}),
    (1024, "zstd", HANDLE): ("tensorstore", {"read, s": 0.8, "read a point, us": 1.2}),
    (1024, "none", BULK): ("LocalStore", {"read a point, us": 1.0}),
    (1024, "zstd", BULK): ("LocalStore", {"read a point, us": 1.0}),
}


def _workloads() -> Iterator[Workload]:
    for title, sizes in _SIZES.items():
        for codec in ("none", "zstd"):
            for reader, name in _NAMES.items():
                first, expected = _TARGETS[sizes["chunk_kib"], codec, reader]
                peers = [peer for peer in PEERS if peer != PLAIN_FILES or codec == "none"]
                others = [first, *(peer for peer in peers if peer not in (FRAZIL, first))]
                options = {"codec": codec, "pipeline": reader}
                yield Workload(
                    f"{title}{', zstd' if codec == 'zstd' else ''}, read with {name}",
                    "chunk_io.local",
                    {**sizes, **options},
                    {"chunks": 8, "chunk_kib": 1, **options},
                    tuple(peers),
                    expected=expected,
                    compare=tuple((FRAZIL, peer) for peer in others),
                )


SELECTIONS: Final = tuple(_workloads())
