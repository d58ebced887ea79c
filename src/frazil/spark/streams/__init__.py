"""Streams: commits as a source, micro-batches as commits.

source     the change feed of a branch as a source, with limits for each batch
sink       one commit for each micro-batch, exactly once after failures; pipelines for each batch
"""
