"""Many files become one version of a repository: as copies, or as references to the bytes in the files.

The walk of one ingest. Each step returns one frozen value, which the next step reads:

    options       `IngestRequest`: the checked call; `pattern` expands globs to `SourceFiles`
    inspection    `Inspection`: what is in each file, as columns; `inspection_task` opens files in
                  parallel, and makes a `file_report` of each
    ledger        `Ledger`: the files that were ingested into the group before
    plan          `Plan`: for the session of the job, in this order
      existing        `ExistingGroup`: the arrays of the group
      ledger_match    `LedgerMatch`: files that the ledger has, unchanged or changed
      reconcile       `Reconciliation`: families of files that are one dataset, and the order of their steps;
                      `verdicts`: which files are good so far
      axis_plan       `Axis`: the labels of the group, with those of the files in their places
      task_plan       the tasks of the job, in this order
        array_plan      `FamilyArrays`: the arrays that tasks write, each a `planned_array`
        group_growth    `GrownArrays`: the arrays after the driver has resized them
        items           `Item`: whole chunks for one task, and the files that they need
    tasks         copies values (`sparse`: constant chunks), or sets references (`references`)
    operation     `ingest`: all steps, then one commit by the job; `inspect_files`: the first two
                  (`source_inspection`)

What the steps use:

    file_access         how files are opened
    file_layout         what many files have in common; `layout_differences` compares two layouts in words
    families            files with the same data variables
    dimension           the dimension in which files follow each other, if the caller does not name it
    time_units          one unit for the times of all files; `time_conversion` computes with units
    stacked_variables   the variables that get the dimension
    shared_coordinates  the coordinates that several families have
    labels, step_order  the labels of steps, and the place of each step; `gaps` between them
    axis                where labels go, by mode
    arrays              chunks, codecs and attributes of one array
    array_match         whether a variable fits to the array that exists
    existing_checks     dimensions, lengths and values of the group; `scalar_checks`: its levels, members, ...
    plain_chunks        chunks of plain bytes, cut into smaller ones
    chunk_alignment     whether files and moved steps are on the borders of chunks
    task_context        what is the same for all tasks, and the open files of one
    problems, notes     what can be wrong, and what helps; `report` and `outline` show it
    containers          virtual chunk containers of the caller
    size                whether the files are few and small
"""

from frazil.pipeline.ingest.operation import IngestResult, ingest, inspect_files
from frazil.pipeline.ingest.pattern import ConcatDim, FilePattern, MergeDim
from frazil.pipeline.ingest.problems import KINDS, Problem
from frazil.pipeline.ingest.report import Report

__all__ = [
    "KINDS",
    "ConcatDim",
    "FilePattern",
    "IngestResult",
    "MergeDim",
    "Problem",
    "Report",
    "ingest",
    "inspect_files",
]
