"""Pipelines as data: a definition in TOML or Python, and the methods that plan and run it.

tables     the tables of files and of derived arrays, each checked
files      the files of a table: what is left to ingest, the plan of the ingest, the files of a span
results    the plan, the runs, the state and the graph of a pipeline
pipeline   `Pipeline`: reads a definition, and does what is left to do
"""

from frazil.lazy_names import import_on_demand

__all__ = import_on_demand(__name__, extra="pipeline")
