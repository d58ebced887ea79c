"""Tools for tests of Frazil and of projects that use it. Not for production.

==========================  =================================================================================
``LatencyStorage``          a storage that delays requests
``storage_suite``           the contract of storages as tests
``storages``                storages whose requests fail or are slow
``spark_cluster``           a Spark cluster on this machine
``processes``               programs that run during a ``with`` block
==========================  =================================================================================
"""

from frazil.testing.storages import LatencyStorage

__all__ = ["LatencyStorage"]
