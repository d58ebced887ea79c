"""Streams: commits as a source, micro-batches as commits.

source     the change feed of a branch, with limits for each batch
feed       its rows, from transaction logs
history    the commits that are ahead of a position
sink       one commit for each micro-batch, whatever fails
stamps     how a batch is known to be done
rows       rows with coordinates go into arrays
pipelines  whole pipelines for each micro-batch, with the same guarantee
"""

from frazil.spark.streams.feed import DDL as CHANGES
from frazil.spark.streams.pipelines import foreach_batch
from frazil.spark.streams.sink import stream_writer
from frazil.spark.streams.source import stream_reader

__all__ = ["CHANGES", "foreach_batch", "stream_reader", "stream_writer"]
