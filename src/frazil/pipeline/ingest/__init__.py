"""Ingest: many files become one dataset of a repository, as copies or as references to the files.

options       `IngestRequest`: the checked call, with its files; the kinds of problems
inspection    `Inspection`: the contents of each file, as columns; tasks open the files in parallel
dataset       `Dataset`: the files that are one dataset, their order (`steps`), their `families`
existing      `ExistingGroup` and `Ledger`: the group before it changes, and the files that it contains
plan          in the session of the job: the `StepAxis`, the arrays, and `IngestItem`: the chunks of a task
tasks         copy values of files into chunks, or set references to their bytes
operation     `ingest`: all steps, then one commit by the job; `inspect_files`: the first two steps
"""

from frazil.lazy_names import import_on_demand

__all__ = import_on_demand(__name__, extra="pipeline")
