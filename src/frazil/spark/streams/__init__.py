"""Streams: commits as a source, micro-batches as commits.

source             the change feed of a branch as a source, with limits for each batch
limits             these limits, in older and newer versions of Spark
change_feed        the rows of the feed, from transaction logs
commit_order       the commits after a position
sink               a sink: one commit for each micro-batch, exactly once after failures
batch_pipelines    a whole pipeline for each micro-batch, with the same guarantee
stamps             the stamp of a batch in its commit, which shows that the batch is done
"""
