"""The workloads of many references, many nodes, and their upkeep."""

from __future__ import annotations

from typing import Final

from workload import FRAZIL, REFERENCE, Target, Workload, at_most

#: Targets of an array with millions of references.
MILLIONS = {"set and commit, s": 0.15, "peak memory over the inputs, MiB": 0.25, "first lookup, s": 0.3}
COMPRESSION = {
    "set and commit, s": "compression: 40 % of the time is zstd, at its fastest, for 45 MB of manifests "
    "and 24 MB of the log for a million references"
}
#: Targets of an array of any size.
ANY_SIZE = {
    "cold look-up, ms": 50,
    "a commit of one chunk writes, KiB": 256,
    "driver's peak memory over the start, MiB": 256,
}

REFERENCES: Final = (
    Workload(
        "A million virtual references",
        "metadata.at_scale",
        {"references": 1_000_000},
        {"references": 2000},
        targets=at_most(REFERENCE, MILLIONS, COMPRESSION),
    ),
    Workload(
        "Ten million virtual references",
        "metadata.at_scale",
        {"references": 10_000_000},
        {"references": 2000},
        targets=at_most(
            REFERENCE,
            {**MILLIONS, "change one, cold, and commit, s": 0.1, "change another and commit, s": 0.1},
            COMPRESSION,
        ),
        rounds=2,
        large=True,
    ),
    *(
        Workload(
            f"A million references like those of an archive: {title}",
            "metadata.real_sets",
            {"kind": kind, "references": 1_000_000},
            {"kind": kind, "references": 2000},
            (FRAZIL, REFERENCE, "Parquet"),
            targets=at_most(None, {"all files, bytes for a reference": bound}),
            rounds=2,
        )
        for kind, title, bound in (
            ("hours", "744 hours in each file", 12),
            ("files", "a file for each chunk, with three times in its name", 21),
        )
    ),
    *(
        Workload(
            f"An array of {references:,} virtual references, without a setting for its size",
            "sizes.grown",
            {"references": references},
            {"references": 4000, "times": 2},
            (FRAZIL,),
            compare=(),
            targets=at_most(
                None, {**ANY_SIZE, **({"set and commit, by tasks, s": 60} if references == 10**8 else {})}
            ),
            rounds=1,
            large=references > 10**7,
        )
        for references in (10**4, 10**5, 10**6, 10**7, 10**8)
    ),
    Workload(
        "Upkeep of 1,000 versions with a million references",
        "upkeep.operations",
        {"versions": 1000, "references": 1_000_000, "chunk_files": 10_000},
        {"versions": 20, "references": 2000, "chunk_files": 40, "separate": False},
        targets=(
            *at_most(REFERENCE, {f"{name}, processor s": 0.5 for name in ("collect", "statistics")}),
            *at_most(None, {"view, s": 2}),
        ),
        rounds=1,
    ),
    Workload(
        "Withdrawal of a half of 7.6 million references in 94 versions",
        "upkeep.withdrawal",
        {"versions": 94, "references": 7_600_000},
        {"versions": 5, "references": 500, "separate": False},
        (FRAZIL,),
        targets=at_most(None, {"forget, processor s": 10, "forget, peak MiB": 300}),
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
            targets=at_most(REFERENCE, {"set and commit, s": 0.4}),
        )
        for references, split in ((1_200_000, 1000), (12_000_000, 10_000))
        for title, options in (("", {}), (", split manifests", {"split": split}))
    ),
    Workload(
        "A collection of 100,000 members: a member more, beside a commit of only its dataset",
        "members.add",
        {"members": 100_000},
        {"members": 50},
        (FRAZIL, "a plain commit"),
        targets=at_most("a plain commit", {"a commit, ms": 2}),
    ),
    Workload(
        "A collection of 100,000 members: searches",
        "members.where",
        {"members": 100_000},
        {"members": 50},
        (FRAZIL,),
        targets=(Target("where, again, processor ms", 50), Target("requests of a new handle", 6)),
    ),
    Workload("A snapshot of 10,000 arrays", "hierarchy.many_arrays", {"arrays": 10_000}, {"arrays": 20}),
    Workload(
        "Training: an epoch of shuffled windows of 24 of 1,024 steps",
        "training.windows",
        {"steps": 1024, "window": 24},
        {"steps": 64, "window": 4},
        (FRAZIL, "frazil, zarr", REFERENCE, "insitubatch", "beluga"),
        targets=(
            *at_most("frazil, zarr", {"an epoch, s": 0.2}),
            *at_most(REFERENCE, {"an epoch, s": 0.2}),
            *at_most("insitubatch", {"an epoch, s": 1.0}),
            *at_most("beluga", {"an epoch, s": 1.0}),
        ),
    ),
    Workload(
        "SQL: a grid of 2,920 steps of 25 x 53 cells, beside xarray-sql and Parquet",
        "tables.queries",
        {"steps": 2920},
        {"steps": 1500},
        (FRAZIL, "xarray-sql", "DuckDB on Parquet"),
        targets=at_most(
            "xarray-sql",
            {f"{name}, s": 0.33 for name in ("mean of each month", "mean of each step")},
            {
                f"{name}, s": "the engine of SQL, which takes most of the time"
                for name in ("mean of each month", "mean of each step")
            },
        ),
    ),
    Workload(
        "Statistics: 10,240 fields of 1 MiB",
        "chunk_statistics.answers",
        {"steps": 10_240},
        {"steps": 64},
        (FRAZIL,),
        targets=(
            Target("mean, maximum and count, again, ms", 10),
            Target("mean of a random range of steps, ms", 20),
        ),
    ),
    Workload(  # a full read of 10 GiB would take minutes
        "Statistics: 1,024 fields of 1 MiB, beside Dask on icechunk",
        "chunk_statistics.answers",
        {"steps": 1024},
        {"steps": 48},
        (FRAZIL, "Dask on icechunk"),
    ),
    Workload(
        "Statistics: 256 fields of 1 MiB, beside DuckDB on Parquet",
        "chunk_statistics.answers",
        {"steps": 256},
        {"steps": 32},
        (FRAZIL, "DuckDB on Parquet"),
    ),
    Workload(
        "Statistics: writes of 128 chunks of 1 MiB, with and without",
        "chunk_statistics.writes",
        {"chunks": 128},
        {"chunks": 4},
        (FRAZIL, "frazil without statistics"),
        targets=at_most("frazil without statistics", {"f4, zstd, s": 1.05, "f8, zstd, s": 1.05}),
    ),
    Workload(
        "Statistics: 10,000,000 chunks",
        "chunk_statistics.memory",
        {"chunks": 10_000_000},
        {"chunks": 10_000},
        (FRAZIL,),
        targets=(Target("peak memory, MiB", 256),),
    ),
    Workload(
        "xarray: a tree of 1,000 groups with 4 arrays each",
        "hierarchy.tree",
        {"groups": 1_000},
        {"groups": 20},
        targets=(Target("open the tree, s", 0.5, limit="xarray, which copies the nodes"),),
    ),
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
)
