"""Histories of real processes on real storages, and a checker for them.

====================  =============================================================================
``layout``            the arrays of the repository, and a version as one row of numbers
``log``               the JSON lines of a worker: what it begins, and the answer that it gets
``operations``        what a worker does
``worker``            the program of a worker: ``python -m tests.history.worker``
``stores``            local files and object stores; a proxy with faults before the stores of type S3
``campaign``          starts workers, kills them with SIGKILL, and starts new ones
``evidence``          logs and repository -> one ``History``
``replay``            the ops log again, with a model of each version
``checker``           ``History`` -> anomalies
``soak``              many commits in one process: memory, handles, threads and files
====================  =============================================================================

``make history`` runs all of it: ``python -m tests.history``.
"""
