"""The list of workloads, with their sizes and the expected ratios.

The workloads of the pipeline are in `pipeline.workloads`.
"""

from __future__ import annotations

from commit_peers import DURABLE, NO_FLUSH
from pipeline.workloads import PIPELINE
from selections import SELECTIONS
from workload import BOTH, FRAZIL, REFERENCE, Workload
from writer_workloads import WRITERS

ALL = (*BOTH, "LocalStore", "obstore", "tensorstore")

#: Frazil without deduplication.
PLAIN = "frazil, plain"

SMALL = {"chunks": 4096, "chunk_kib": 16}
NOT_DURABLE = (NO_FLUSH, REFERENCE)
EIGHT = {"processes": 8, "commits": 15}

#: Files of text stand for arrays.
COMMANDS = (FRAZIL, "git")

LARGE = {"chunks": 128, "chunk_kib": 1024}
FEW = {"chunks": 8, "chunk_kib": 1}

#: The titles of the workloads of ``make bench-quick``, which take about two minutes.
DAILY = frozenset(
    {
        "A million virtual references",
        "4,096 chunks of 16 KiB, read with frazil.Array",
        "128 chunks of 1 MiB, zstd",
        "Small commits, one process",
        "Small commits, 8 processes at once",
        "A repository of 1,000 commits",
        "A snapshot of 10,000 arrays",
    }
)

WORKLOADS = (
    Workload(
        "A million virtual references",
        "metadata.at_scale",
        {"references": 1_000_000},
        {"references": 2000},
        expected={
            "set and commit, s": 0.15,
            "peak memory over the inputs, MiB": 0.25,
            "first lookup, s": 0.3,
        },
    ),
    Workload(
        "Ten million virtual references",
        "metadata.at_scale",
        {"references": 10_000_000},
        {"references": 2000},
        expected={
            "set and commit, s": 0.15,
            "peak memory over the inputs, MiB": 0.25,
            "first lookup, s": 0.3,
            "change one, cold, and commit, s": 0.1,
            "change another and commit, s": 0.1,
        },
        rounds=2,
        large=True,
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
            expected={"read, s": 0.05},
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
        expected={"write and commit, s": 1.1, "write again and commit, s": 1.1},
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
            limits={"cold read, rounds": 4, "warm read, rounds": 2},
        )
        for kib, codec in ((1, "none"), (16, "none"), (16, "zstd"))
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
    *WRITERS,
    *(
        Workload(
            f"A repository of {commits:,} commits",
            "history.long",
            {"commits": commits},
            {"commits": 20},
            expected={
                "open, ms": 0.8,
                "open a session and look a chunk up, ms": 0.8,
                "ancestry, ms": 1.0,
                "ancestry as columns, ms": 0.2,
            },
        )
        for commits in (1000, 10_000, 100_000)
    ),
    Workload(
        "A rebase and a difference over 1,000 commits of others",
        "integration.others",
        {"commits": 1000, "references": 10},
        {"commits": 20, "references": 2},
        expected={"rebase, s": 0.3, "difference, s": 0.3},
        rounds=3,
    ),
    Workload(
        "100 forks with a million references",
        "integration.forks",
        {"number": 100, "references": 10_000},
        {"number": 3, "references": 20},
        expected={"merge at once, s": 0.3, "merge one by one, s": 0.3, "pickle, s": 0.3, "unpickle, s": 0.3},
        rounds=3,
    ),
    Workload(
        "The import of the library",
        "imports.start",
        {},
        {},
        expected={"import, processor s": 0.8, "import and Repository, processor s": 0.8},
        limits={"own part of the import, processor s": 0.1},
        rounds=3,
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
    *(
        Workload(
            f"142 arrays with {references:,} virtual references in one commit{title}",
            "metadata.many_arrays",
            {"arrays": 142, "references": references, **options},
            {"arrays": 3, "references": 3000, "split": 500 if options else 0},
            rounds=2,
            large=references > 2_000_000,
            expected={"set and commit, s": 0.4},
        )
        for references, split in ((1_200_000, 1000), (12_000_000, 10_000))
        for title, options in (("", {}), (", split manifests", {"split": split}))
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
