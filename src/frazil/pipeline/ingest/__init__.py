"""Ingest: many files become one dataset of a repository, as copies or as references to the files.

The steps of one ingest, each one pass:

    options       `IngestRequest`: the checked call, with its files
    inspection    `Inspection`: the contents of each file, as columns; tasks open the files in parallel
    ledger        `Ledger`: the files that earlier ingests wrote into the group
    plan          in the session of the job: known files, the `Dataset`, the `Axis`, the arrays, the items
    tasks         copy values of files into chunks, or set references to their bytes
    operation     `ingest`: all steps, then one commit by the job; `inspect_files`: the first two steps

The values that the plan passes on:

    dataset       `Dataset`: the files that are one dataset, their order, the problems of the others
    encodings     `Encodings`: one encoding for each coordinate of the dataset
    existing      `ExistingGroup`: the group before it changes; `GroupChange`: the call, its files, the group
    array_plan    `PlannedArray` and `Item`: the arrays that tasks write, and whole chunks for one task
"""

from frazil.lazy_names import import_on_demand

__all__ = import_on_demand(__name__, extra="pipeline")
