"""The workloads of many writers on a slow network."""

from __future__ import annotations

from typing import Final

from workload import Workload, at_most

#: The targets of Frazil for many writers.
CONTENDING = at_most(
    None,
    {
        "attempts, 99th percentile": 5,
        "writers that gave up": 0,
        "written files, of the least number": 1.1,
        "lost, references": 0,
    },
)

WRITERS: Final = (
    Workload(
        "8 writers, 16 arrays each, on S3 with 58 ms for each request",
        "writers.contending",
        {"writers": 8, "arrays": 16, "references": 100, "latency_ms": 58},
        {"writers": 2, "arrays": 2, "references": 2, "latency_ms": 1},
        rounds=2,
        targets=CONTENDING,
    ),
    *(
        Workload(
            f"20 writers, 60 arrays each, on S3 with 58 ms for each request{title}",
            "writers.contending",
            {"writers": 20, "arrays": 60, "references": 100, "latency_ms": 58, **options},
            {"writers": 2, "arrays": 2, "references": 2, "latency_ms": 1, **options},
            rounds=1,
            large=True,
            targets=CONTENDING,
        )
        for title, options in (
            ("", {}),
            (", manifests split by writer", {"split": True}),
            (", one of them amends", {"amending": 1}),
            (", all amend", {"amending": 20}),
        )
    ),
)
