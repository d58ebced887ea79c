"""The process that Spark's Python workers are forked from, with the imports that all of them need.

`get_spark` makes local sessions start it instead of Spark's own process (``spark.python.daemon.module``). A
worker then begins to work at once, without seconds of imports, and shares the memory of all imports with
other workers: also that of the operations of `frazil.pipeline`, with xarray and pandas. This process must
not use a storage: connections from before a fork do not work after it.
"""

from __future__ import annotations

import gc

from pyspark.daemon import manager

import frazil.spark  # this and the next imports are for the workers
import frazil.spark.data_source
import frazil.spark.runtime.on_spark
import frazil.spark.streams.sink
import frazil.spark.tables.write_table

if __name__ == "__main__":
    for name in frazil.spark.__all__:
        getattr(frazil.spark, name)  # imports the module of the name
    gc.collect()
    gc.freeze()  # garbage collections of the workers skip all imports
    manager()
