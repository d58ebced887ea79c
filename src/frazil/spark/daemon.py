"""The process that Spark's Python workers are forked from, with the imports that all of them need.

`get_spark` makes local sessions start it instead of Spark's own process (``spark.python.daemon.module``). A
worker then begins to work at once, and shares the memory of these imports with other workers. A worker
imports the operation of its tasks itself, in a tenth of a second: the imports of all operations would delay
the first job of a session by half a second. This process must not use a storage: connections from before a
fork do not work after it.
"""

from __future__ import annotations

import gc

from pyspark.daemon import manager

import frazil.spark.data_source  # this and the next imports are for the workers
import frazil.spark.runtime.on_spark  # noqa: F401

if __name__ == "__main__":
    gc.collect()
    gc.freeze()  # garbage collections of the workers skip all imports
    manager()
