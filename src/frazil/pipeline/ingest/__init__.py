"""Ingest: many files become one dataset of a repository, as copies or as references to the files.

The steps of one ingest. Each step returns one frozen value, which the next step reads:

    options       `IngestRequest`: the checked call; `pattern` expands globs to `SourceFiles`
    inspection    `Inspection`: the contents of each file, as columns; `inspection_task` opens files in
                  parallel, and makes a `file_report` of each file
    ledger        `Ledger`: the files that earlier ingests wrote into the group
    plan          `Plan`: for the session of the job, in this order
      existing        `ExistingGroup`: the arrays of the group
      ledger_match    `LedgerMatch`: the files that the ledger contains, unchanged or changed
      reconcile       `Dataset`: families of files that are one dataset, and the order of their steps;
                      `verdicts`: which files are still good
      axis_plan       `Axis`: the labels of the group and of the files, in order
      task_plan       the tasks of the job, in this order
        array_plan      `FamilyArrays`: the arrays that tasks write, each a `planned_array`
        group_growth    `GrownArrays`: the arrays after the driver has resized them
        items           `Item`: whole chunks for one task, and the files that they need
    tasks         copies values (`sparse`: constant chunks), or sets references (`references`)
    operation     `ingest`: all steps, then one commit by the job; `inspect_files`: the first two steps
                  (`source_inspection`)

The steps use these modules:

    file_access         opens files with the options of the caller
    file_layout         the layout that many files share; `layout_differences` compares two layouts in words
    families            files with the same data variables
    dimension           finds the dimension in which files follow each other, if the caller does not name it
    time_units          one unit for the times of all files; `time_conversion` computes with units
    stacked_variables   the variables that get the dimension
    shared_coordinates  the coordinates that several families have
    labels, step_order  the labels of steps, and the position of each step; `gaps` between them
    axis                the positions of labels, by mode
    arrays              chunks, codecs and attributes of one array
    array_match         compares a variable with the existing array
    existing_checks     checks dimensions, lengths and values of the group; `scalar_checks`: levels, members
    plain_chunks        cuts chunks of plain bytes into smaller chunks
    chunk_alignment     checks that files and moved steps are on the borders of chunks
    task_context        the value that all tasks share, and the open files of one task
    problems, notes     kinds of problems and their remedies; `report` and `outline` show them
    containers          virtual chunk containers of the caller
    size                tells whether the files are few and small
"""

from typing import TYPE_CHECKING

from frazil.lazy_names import import_on_demand

if TYPE_CHECKING:
    from frazil.pipeline.ingest.operation import IngestResult, ingest, inspect_files
    from frazil.pipeline.ingest.pattern import ConcatDim, FilePattern, MergeDim
    from frazil.pipeline.ingest.problems import KINDS, Problem
    from frazil.pipeline.ingest.report import Report

import_on_demand(
    __name__,
    {
        "IngestResult": "frazil.pipeline.ingest.operation",
        "ingest": "frazil.pipeline.ingest.operation",
        "inspect_files": "frazil.pipeline.ingest.operation",
        "ConcatDim": "frazil.pipeline.ingest.pattern",
        "FilePattern": "frazil.pipeline.ingest.pattern",
        "MergeDim": "frazil.pipeline.ingest.pattern",
        "KINDS": "frazil.pipeline.ingest.problems",
        "Problem": "frazil.pipeline.ingest.problems",
        "Report": "frazil.pipeline.ingest.report",
    },
    extra="pipeline",
)

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
