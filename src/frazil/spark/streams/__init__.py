"""Streams: commits as a source, micro-batches as commits.

source     the change feed of a branch as a source, with limits for each batch
sink       a sink: one commit for each micro-batch, exactly once after failures
stamps     the stamp of a batch in its commit, which shows that the batch is done; pipelines for each batch
"""
