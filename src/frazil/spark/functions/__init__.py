"""Functions of SQL, each of which returns a table.

registration   ``frazil_rows``, the tables about a repository, and the registration of all functions
declaration    what declares a function that changes or checks a repository, and what makes Spark call it
upkeep         these functions
"""
