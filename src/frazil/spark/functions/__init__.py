"""Functions of SQL, each of which returns a table.

registration        the registration of all functions with a session
arguments           arguments of SQL as options and values
rows_function       ``frazil_rows``: the rows of arrays
table_functions     ``frazil_snapshots``, ``frazil_chunks``, ...: tables about a repository
upkeep_function     a function that changes or checks a repository: its arguments, its pin, its work
upkeep_calls        such a function as a class that Spark calls
upkeep_table        all these functions; their work is in `ref_functions` and `storage_functions`
"""
