"""Arrays as tables of Spark, and tables about a repository. `frazil.arrow` reads the blocks of tables.

options              the options of the data source: names, places, versions, profiles
scan                 which blocks a query reads, the work of its tasks, and their DataFrames
jvm_table            a table of Spark's JVM whose scans this process plans
row_changes          the comparison of two versions by the labels of their rows
repository_tables    tables about a repository
data_source_reader   ``spark.read.format("frazil")`` of all of these

write_table          `frazil.spark.write_table`, and ``df.write.format("frazil")``
schemas              columns: their types in Arrow and in Spark, conditions on them
"""
