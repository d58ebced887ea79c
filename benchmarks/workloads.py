"""The list of workloads, with their sizes and the expected ratios."""

from __future__ import annotations

from typing import Final

from chunk_workloads import CHUNKS
from command_workloads import STARTS
from commit_workloads import COMMITS
from pipeline.workloads import PIPELINE
from reference_workloads import REFERENCES

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

WORKLOADS: Final = (*CHUNKS, *REFERENCES, *COMMITS, *STARTS, *PIPELINE)
