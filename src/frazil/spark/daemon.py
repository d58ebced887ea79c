"""The process that Spark's Python workers are forked from, with everything imported that they need.

Spark starts it in the place of its own (``spark.python.daemon.module``), where `get_spark` makes a local
session. A worker then begins to work at once, instead of with a second of imports, and shares memory with
the others. Nothing here may use a storage: what it uses before a fork is of no use after it.
"""

from __future__ import annotations

import gc

from pyspark.daemon import manager

import frazil.spark  # for the workers, as what follows
import frazil.spark.data_source
import frazil.spark.dataframes
import frazil.spark.runtime.on_spark
import frazil.spark.streams.batch_pipelines
import frazil.spark.tables.write_table

if __name__ == "__main__":
    assert frazil.spark  # imported, and that is all
    gc.collect()
    gc.freeze()  # and their garbage collections need not walk all of it
    manager()
