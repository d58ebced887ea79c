"""Arrays as tables of Spark, and tables about a repository.

options              the options of the data source: names, places, versions, profiles
grid                 a group of arrays as one table: dimensions, columns, blocks, decoded values
conditions           conditions on columns: their text, and their evaluation
scan                 which blocks a query reads, which task reads them, and the work of the task
data_source_reader   ``spark.read.format("frazil")``
row_changes          the comparison of two versions by the labels of their rows

write_layout         dimensions and arrays that rows are written to, and the elements of values
target_arrays        arrays are created or grow
row_chunks           rows to chunks: sources of rows, their groups, and the work of a task
write_table          `frazil.spark.write_table`, and ``df.write.format("frazil")``

repository_tables    tables about a repository; `snapshot_tables` has their columns and some of them
schemas              schemas of Arrow and of Spark
"""
