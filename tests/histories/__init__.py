"""Histories of real processes on real storages, and a checker for them.

====================  =============================================================================
``layout``            the arrays of the repository, and a version as one row of numbers
``operations``        a worker as a client: its log of JSON lines, and all operations
``launcher``          what one worker does; starts workers as forks of one process
``campaign``          storages; lets workers run, kills them with SIGKILL, and starts new ones
``checker``           logs and repository -> one ``History`` -> anomalies, by a model of each version
``soak``              many commits in one process: memory, handles, threads and files
====================  =============================================================================

``make history`` runs all of it: ``python -m tests.histories``.
"""
