"""Jobs: the driver plans, tasks work, one commit follows. This package imports no pyspark and no operation."""
