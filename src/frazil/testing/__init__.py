"""Tools for tests of Frazil and of what is built on it. Not for production.

``LatencyStorage`` delays requests; ``strategies`` and ``trees`` make configurations, hierarchies and moves
for Hypothesis; ``models`` is what a store should do, in memory; ``invariants`` and ``utils`` compare the two;
``storage_suite`` is the contract of storages as tests; ``faults`` makes requests fail; ``spark_cluster`` is a
cluster of Spark on this machine; ``processes`` starts programs for the time of a ``with`` block.
"""

from frazil.testing.latency import LatencyStorage

__all__ = ["LatencyStorage"]
