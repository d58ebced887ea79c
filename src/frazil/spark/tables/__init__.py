"""Arrays as tables of Spark, and tables about a repository.

Options of the data source:

    options                 the names of all options, and advice for unknown ones
    location                the repository and the version that options name
    profiles                names of locations with defaults of options
    process_errors          errors of Frazil in processes of Spark

Arrays to rows:

    grid, group_grid        a group of arrays as one table: dimensions, columns, blocks
    decoding                elements of an array to values of a column
    conditions, predicates  conditions on columns: their text, and their evaluation
    scan_blocks, scan_plan  which blocks a query reads, and which task reads them
    version_slices          the part of a version that a task needs, so that it requests only chunks
    batches                 the work of a task: blocks to Arrow batches

Rows to arrays:

    write_table             `frazil.spark.write_table`
    write_options           the options of a caller
    write_job               the job that writes rows
    row_sources             where the rows come from; `dataframe_rows`: from a DataFrame
    write_layout            dimensions and arrays that rows are written to; `row_groups`: units and tasks
    target_arrays           arrays are created or grow; `new_arrays`, `added_columns`, `axes`
    row_chunks              rows to chunks
    encoding                values of a column to elements of an array
    data_source_reader      ``spark.read.format("frazil")``
    data_source_writer      ``df.write.format("frazil")``

Rows that differ between two versions:

    row_changes             the comparison of two versions by the labels of their rows
    row_changes_reader      its versions and columns in the data source

Tables about a repository:

    repository_tables       all tables; `snapshot_tables`, `content_tables`, `usage_tables`, `change_table`
    repository_schemas      their columns
    table_sessions          the session and the arrays that a table reads
    arrow_columns, schemas  columns and schemas of Arrow and of Spark
"""
