"""Many files become one version of a repository: as copies, or as references to the bytes in the files.

pattern       which files
opening       which reader is for a file: by its first bytes; `formats` are the readers
sources       what a file holds, and what a reader has to be able to do
inspection    files are looked at in parallel
layout        what many files have in common
families      files with the same data variables
dimension     the dimension in which files follow each other, if the caller does not name it
time_units    one unit for the times of all files
labels        the labels of the steps of files
shared        what files with other variables have in common
ordering      which step of which file goes where
combining     what belongs together, in which order, and what is wrong
problems      what can be wrong, what of it can be tolerated, and what helps
report        the same as a table, and in words
axis          where labels go
arrays        the arrays that a dataset gets
planning      items of work: whole chunks, and the files that they need
working       what tasks do
size          whether it is a small job
record        which files are in a group already
operation     `ingest`
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
