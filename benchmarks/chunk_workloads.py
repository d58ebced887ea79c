"""The workloads that write and read chunks."""

from __future__ import annotations

from typing import Final

from selections import SELECTIONS
from workload import BOTH, FRAZIL, REFERENCE, Workload, at_most

ALL = (*BOTH, "LocalStore", "obstore", "tensorstore")

#: Frazil without deduplication.
PLAIN = "frazil, plain"

#: Frazil with a repository on this machine.
LOCAL = "frazil, local"

SMALL = {"chunks": 4096, "chunk_kib": 16}
LARGE = {"chunks": 128, "chunk_kib": 1024}
FEW = {"chunks": 8, "chunk_kib": 1}

ROUNDS = dict.fromkeys(
    ("cold read, rounds", "warm read, rounds"),
    "the time of the server, the proxy and the reader, beside 4 rounds of requests (cold) and 2 (warm). A "
    "round has 20 ms",
)

#: The queries of ``virtual_queries``.
QUERIES: Final = ("a point through time", "a box", "samples one by one", "an epoch of windows")

CHUNKS: Final = (
    Workload(
        "4,096 chunks of 16 KiB",
        "chunk_io.local",
        SMALL,
        FEW,
        ALL,
        targets=at_most(REFERENCE, {"write and commit, s": 0.06, "read, s": 0.06, "read a point, us": 0.2}),
    ),
    Workload(
        "4,096 chunks of 16 KiB, zarr's FusedCodecPipeline",
        "chunk_io.local",
        {**SMALL, "pipeline": "fused"},
        {**FEW, "codec": "zstd", "pipeline": "fused"},
        (FRAZIL, REFERENCE, "LocalStore", "obstore"),
    ),
    Workload("128 chunks of 1 MiB", "chunk_io.local", LARGE, FEW, ALL),
    Workload(
        "128 chunks of 1 MiB, zstd",
        "chunk_io.local",
        {**LARGE, "codec": "zstd"},
        {**FEW, "codec": "zstd", "pipeline": "fused"},
        ALL,
    ),
    Workload(
        "128 chunks of 1 MiB, zstd, zarr's FusedCodecPipeline",
        "chunk_io.local",
        {**LARGE, "codec": "zstd", "pipeline": "fused"},
        {**FEW, "codec": "zstd", "pipeline": "fused"},
        (FRAZIL, REFERENCE, "LocalStore", "obstore"),
    ),
    *SELECTIONS,
    *(
        Workload(
            f"{count} chunks of 16 KiB, read with frazil.Array",
            "chunk_io.local",
            {"chunks": count, "chunk_kib": 16, "codec": "none", "pipeline": "handle"},
            {**FEW, "codec": "none", "pipeline": "handle"},
            ALL,
        )
        for count in (64, 512)
    ),
    *(
        Workload(
            f"100,000 points in 10,000 chunks of 16 KiB{', zstd' if codec == 'zstd' else ''}, in one call",
            "chunk_io.points",
            {"chunks": 10_000, "count": 100_000, "codec": codec},
            {"chunks": 4, "count": 10, "codec": codec},
            ALL,
            targets=at_most(REFERENCE, {"read, s": 0.05}) + at_most("LocalStore", {"read, s": 0.05}),
        )
        for codec in ("none", "zstd")
    ),
    Workload(
        "128 chunks of 1 MiB, twice, with deduplication",
        "chunk_io.twice",
        LARGE,
        FEW,
        (FRAZIL, PLAIN, REFERENCE),
        compare=((FRAZIL, PLAIN), (FRAZIL, REFERENCE), (PLAIN, REFERENCE)),
        targets=at_most(PLAIN, {"write and commit, s": 1.1, "write again and commit, s": 1.1}),
    ),
    Workload(
        "1,000 chunks of 16 KiB on S3 (ministack, loopback)",
        "remote.s3",
        {"chunks": 1000, "chunk_kib": 16},
        FEW,
    ),
    *(
        Workload(
            f"256 chunks of {kib} KiB{', zstd' if codec == 'zstd' else ''}, on S3 with a latency of 20 ms",
            "remote.far",
            {"chunks": 256, "chunk_kib": kib, "latency_ms": 20, "codec": codec},
            {"chunks": 4, "chunk_kib": 1, "latency_ms": 1, "codec": codec},
            targets=at_most(None, {"cold read, rounds": 4, "warm read, rounds": 2}, ROUNDS),
        )
        for kib, codec in ((1, "none"), (16, "none"), (16, "zstd"))
    ),
    *(
        Workload(
            f"4,096 chunks of 16 KiB{', zstd' if codec == 'zstd' else ''}, on S3 at 20 ms with a cache",
            "disk_cache.epochs",
            {**SMALL, "latency_ms": 20, "codec": codec},
            {**FEW, "latency_ms": 1, "codec": codec},
            (FRAZIL, LOCAL),
            compare=((FRAZIL, LOCAL),),
            targets=at_most(LOCAL, {"a later epoch, median, ms": 1.11}, {"a later epoch, median, ms": limit}),
        )
        for codec, limit in (("none", "the checksums of blocks, in the first of these epochs"), ("zstd", ""))
    ),
    Workload(
        "Virtual references into 16 NetCDF-4 files, on S3 with a latency of 20 ms",
        "virtual_queries.queries",
        {"files": 16, "samples": 40, "latency_ms": 20},
        {"files": 1, "samples": 1, "latency_ms": 1},
        targets=at_most(
            REFERENCE,
            {f"{query}, GETs": 0.1 for query in QUERIES} | {f"{query}, s": 0.33 for query in QUERIES},
            {"samples one by one, s": "xarray reads the three variables of a sample one after the other"},
        ),
        rounds=3,
    ),
    Workload(
        "4,096 chunks of 16 KiB, the store called directly",
        "chunk_io.own_share",
        SMALL,
        FEW,
        (FRAZIL,),
        rounds=2,
    ),
)
