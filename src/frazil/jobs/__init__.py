"""Jobs: plan on the driver, work in tasks, commit once. Neither pyspark nor an operation is known here."""
