"""The list of workloads, with their sizes and the expected ratios.

The workloads of the pipeline are in `pipeline.workloads`.
"""

from __future__ import annotations

from commit_peers import DURABLE, NO_FLUSH
from pipeline.workloads import PIPELINE
from workload import BOTH, FRAZIL, REFERENCE, Workload

ALL = (*BOTH, "LocalStore", "tensorstore")

SMALL = {"chunks": 4096, "chunk_kib": 16}
NOT_DURABLE = (NO_FLUSH, REFERENCE)
EIGHT = {"processes": 8, "commits": 15}

#: Files of text stand for arrays.
COMMANDS = (FRAZIL, "git")

LARGER = {"chunks": 256, "chunk_kib": 1024}
LARGE = {"chunks": 128, "chunk_kib": 1024}
FEW = {"chunks": 8, "chunk_kib": 1}

WORKLOADS = (
    Workload(
        "A million virtual references",
        "metadata.at_scale",
        {"references": 1_000_000},
        {"references": 2000},
        expected={"set and commit, s": 0.4, "peak memory, MiB": 0.4},
    ),
    Workload(
        "4,096 chunks of 16 KiB",
        "chunk_io.local",
        SMALL,
        FEW,
        ALL,
        expected={"write and commit, s": 0.2, "read, s": 0.5},
    ),
    Workload(
        "4,096 chunks of 16 KiB, zarr's FusedCodecPipeline",
        "chunk_io.local",
        {**SMALL, "pipeline": "fused"},
        {**FEW, "codec": "zstd", "pipeline": "fused"},
        (FRAZIL, REFERENCE, "LocalStore"),
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
        (FRAZIL, REFERENCE, "LocalStore"),
    ),
    *(
        Workload(
            f"{title}{', zstd' if codec == 'zstd' else ''}, read with {how}",
            "chunk_io.local",
            {**sizes, "codec": codec, "pipeline": pipeline},
            {**FEW, "codec": codec, "pipeline": pipeline},
            ALL,
        )
        for title, sizes in (("4,096 chunks of 16 KiB", SMALL), ("256 chunks of 1 MiB", LARGER))
        for codec in ("none", "zstd")
        for pipeline, how in (("handle", "frazil.Array"), ("bulk", "frazil.zarr_pipeline"))
    ),
    *(
        Workload(
            f"100,000 points in 10,000 chunks of 16 KiB{', zstd' if codec == 'zstd' else ''}, in one call",
            "chunk_io.points",
            {"chunks": 10_000, "count": 100_000, "codec": codec},
            {"chunks": 4, "count": 10, "codec": codec},
            ALL,
            expected={"read, s": 0.05},
        )
        for codec in ("none", "zstd")
    ),
    Workload("128 chunks of 1 MiB, twice, with deduplication", "chunk_io.twice", LARGE, FEW),
    Workload(
        "1,000 chunks of 16 KiB on S3 (ministack, loopback)",
        "remote.s3",
        {"chunks": 1000, "chunk_kib": 16},
        FEW,
    ),
    Workload(
        "Small commits, one process",
        "commits.alone",
        {"commits": 100},
        {"commits": 3},
        DURABLE,
        expected={"a commit, ms": 1.5},
    ),
    Workload(
        "Small commits without flushes, one process",
        "commits.alone",
        {"commits": 100},
        {"commits": 2},
        NOT_DURABLE,
        expected={"a commit, ms": 1.0},
        compare=(NOT_DURABLE,),
    ),
    Workload(
        "Small commits, 8 processes at once",
        "commits.contending",
        EIGHT,
        {"processes": 1, "commits": 2},
        DURABLE,
        expected={"a commit, ms": 1.0},
        rounds=2,
    ),
    Workload(
        "Small commits without flushes, 8 processes at once",
        "commits.contending",
        EIGHT,
        {"processes": 1, "commits": 1},
        NOT_DURABLE,
        expected={"a commit, ms": 1.0},
        compare=(NOT_DURABLE,),
        rounds=2,
    ),
    *(
        Workload(
            f"An array of {references:,} virtual references, without a setting for its size",
            "sizes.grown",
            {"references": references},
            {"references": 4000, "times": 2},
            (FRAZIL,),
            compare=(),
            limits={"cold look-up, ms": 50, "a commit of one chunk writes, KiB": 256},
            rounds=1,
            large=references > 10**7,
        )
        for references in (10**4, 10**5, 10**6, 10**7, 10**8)
    ),
    Workload("A repository of 1,000 commits", "history.long", {"commits": 1000}, {"commits": 20}),
    Workload("A repository of 10,000 commits", "history.long", {"commits": 10_000}, {"commits": 20}),
    Workload("The start of a command", "commands.start", {}, {}, COMMANDS, compare=(COMMANDS,), rounds=2),
    Workload(
        "The command log of 100,000 commits",
        "commands.log",
        {"number": 100_000},
        {"number": 20},
        COMMANDS,
        compare=(COMMANDS,),
        rounds=1,
    ),
    Workload(
        "The command ls of 100,000 arrays",
        "commands.ls",
        {"arrays": 100_000},
        {"arrays": 20},
        COMMANDS,
        compare=(COMMANDS,),
        rounds=1,
    ),
    Workload(
        "Blame of a million chunks, and bisection, over 10,000 commits",
        "commands.origins",
        {"side": 1000, "number": 10_000, "chunks": 300},
        {"side": 4, "number": 20, "chunks": 3},
        COMMANDS,
        compare=(COMMANDS,),
        rounds=1,
    ),
    Workload(
        "Upkeep of 1,000 versions with a million references",
        "upkeep.operations",
        {"versions": 1000, "references": 1_000_000, "chunk_files": 10_000},
        {"versions": 20, "references": 2000, "chunk_files": 40, "separate": False},
        expected={f"{name}, processor s": 0.5 for name in ("collect", "statistics")},
        rounds=1,
    ),
    Workload("A snapshot of 10,000 arrays", "hierarchy.many_arrays", {"arrays": 10_000}, {"arrays": 20}),
    Workload(
        "Manifest of a million references, 1,000 locations",
        "metadata.codec",
        {"references": 1_000_000, "locations": 1000},
        {"references": 2000, "locations": 20},
        (FRAZIL,),
        rounds=2,
    ),
    Workload(
        "Manifest of a million references, as many locations",
        "metadata.codec",
        {"references": 1_000_000, "locations": 1_000_000},
        {"references": 2000, "locations": 2000},
        (FRAZIL,),
        rounds=2,
    ),
    Workload(
        "4,096 chunks of 16 KiB, the store called directly",
        "chunk_io.own_share",
        SMALL,
        FEW,
        (FRAZIL,),
        rounds=2,
    ),
    *PIPELINE,
)
