"""The workloads that read a whole array and single points, with the readers of Frazil."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

from file_readers import PLAIN_FILES, ZARRISTA
from workload import BOTH, FRAZIL, REFERENCE, Workload, at_most

PEERS: Final = (*BOTH, "LocalStore", "tensorstore", ZARRISTA, PLAIN_FILES)
HANDLE, BULK = "handle", "zarr"
_SIZES: Final[dict[str, dict[str, Any]]] = {
    "4,096 chunks of 16 KiB": {"chunks": 4096, "chunk_kib": 16},
    "256 chunks of 1 MiB": {"chunks": 256, "chunk_kib": 1024},
}
_NAMES: Final = {HANDLE: "frazil.Array", BULK: "zarr"}
WRITE, READ, POINT = "write and commit, s", "read, s", "read a point, us"
#: By the KiB of a chunk, its codec and the reader: the targets of each peer. The first ratio is that
#: of the first peer.
_TARGETS: Final[dict[tuple[int, str, str], dict[str, dict[str, float]]]] = {
    (16, "none", HANDLE): {
        "tensorstore": {READ: 0.5, POINT: 1.2},
        ZARRISTA: {READ: 0.5},
        REFERENCE: {READ: 0.1, WRITE: 0.1},
    },
    (16, "zstd", HANDLE): {"tensorstore": {READ: 1.0, POINT: 1.2}, REFERENCE: {WRITE: 0.1}},
    (16, "none", BULK): {"LocalStore": {WRITE: 1.0, READ: 1.0, POINT: 1.0}},
    (16, "zstd", BULK): {"LocalStore": {WRITE: 1.0, READ: 1.0, POINT: 1.0}},
    (1024, "none", HANDLE): {PLAIN_FILES: {READ: 1.1}, "tensorstore": {POINT: 1.2}},
    (1024, "zstd", HANDLE): {"tensorstore": {READ: 0.8, POINT: 1.2}, REFERENCE: {WRITE: 0.6}},
    (1024, "none", BULK): {
        REFERENCE: {READ: 0.15, POINT: 0.2},
        "LocalStore": {WRITE: 1.0, READ: 1.0, POINT: 1.0},
    },
    (1024, "zstd", BULK): {
        REFERENCE: {READ: 0.3, POINT: 0.2},
        "LocalStore": {WRITE: 1.0, READ: 1.0, POINT: 1.0},
    },
}


#: What decides the results of all chunk sizes.
_LIMITS: Final = {
    WRITE: "compression by the same library: alone it takes 0.6 of the processor time of the reference",
    READ: "the kernel: one call that reads 64 MiB into new memory takes half of the time or more",
    POINT: "zarr, which needs most of the time for a point. The spread of the rounds is larger",
}


def _workloads() -> Iterator[Workload]:
    for title, sizes in _SIZES.items():
        for codec in ("none", "zstd"):
            for reader, name in _NAMES.items():
                targets = _TARGETS[sizes["chunk_kib"], codec, reader]
                peers = [peer for peer in PEERS if peer != PLAIN_FILES or codec == "none"]
                others = [*targets, *(peer for peer in peers if peer not in (FRAZIL, *targets))]
                options = {"codec": codec, "pipeline": reader}
                yield Workload(
                    f"{title}{', zstd' if codec == 'zstd' else ''}, read with {name}",
                    "chunk_io.local",
                    {**sizes, **options},
                    {"chunks": 8, "chunk_kib": 1, **options},
                    tuple(peers),
                    targets=tuple(
                        chain.from_iterable(
                            at_most(peer, bounds, _LIMITS) for peer, bounds in targets.items()
                        )
                    ),
                    compare=tuple((FRAZIL, peer) for peer in others),
                )


SELECTIONS: Final = tuple(_workloads())
