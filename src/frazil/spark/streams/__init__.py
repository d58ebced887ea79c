"""Streams: commits as a source, micro-batches as commits.

source     the change feed of a branch, with limits for each batch
feed       its rows, from transaction logs
history    the commits that are ahead of a position
sink       one commit for each micro-batch, whatever fails
stamps     how a batch is known to be done
rows       rows with coordinates go into arrays
pipelines  whole pipelines for each micro-batch, with the same guarantee
"""
