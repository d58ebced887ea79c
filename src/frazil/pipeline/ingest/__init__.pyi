__all__: list[str]

from frazil.pipeline.ingest.operation import IngestResult as IngestResult
from frazil.pipeline.ingest.operation import ingest as ingest
from frazil.pipeline.ingest.operation import inspect_files as inspect_files
from frazil.pipeline.ingest.options import KINDS as KINDS
from frazil.pipeline.ingest.options import ConcatDim as ConcatDim
from frazil.pipeline.ingest.options import FilePattern as FilePattern
from frazil.pipeline.ingest.options import MergeDim as MergeDim
from frazil.pipeline.ingest.options import Problem as Problem
from frazil.pipeline.ingest.report import Report as Report
