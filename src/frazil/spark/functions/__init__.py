"""Functions of SQL, each of which returns a table: see `frazil.spark.functions.sql_functions`."""
