"""Jobs: the driver plans, tasks work, one commit follows. Imports neither pyspark nor an operation."""
