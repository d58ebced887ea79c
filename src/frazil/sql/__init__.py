"""A catalog for SQL: the groups of repositories are tables that statements read, change and describe.

    names              which group, version or table about a repository a name means
    engine             what a statement needs of an engine of SQL: Spark, Sail, DuckDB
    queries            a parsed query with views instead of names, and its conditions for scans
    row_statements     INSERT, UPDATE, DELETE, MERGE, TRUNCATE
    table_statements   CREATE, ALTER, DROP, DESCRIBE, SHOW
    calls              CALL, and the statements for upkeep and versions
    catalog            the table of statements, and the run of a text
    on_duckdb          DuckDB in this process

sqlglot parses the statements. The engine runs queries, and Frazil writes the rows, in one commit for each
statement.
"""
