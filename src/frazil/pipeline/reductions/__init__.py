"""Reductions of arrays: tasks compute partial results, which are combined to one version.

The arithmetic of each statistic is in `frazil.answers.kernels`.

fields, zones   arrays, their coordinates and groups; labels from polygons
options         the options of the operations, and weights
plan            what is computed, by which tasks, and where partial results are combined
tasks           the tasks: which regions they read, and what they compute
reduction_job   the job on the driver, and the arrays that it creates
functions       the operations; `anomaly` is in anomalies
"""

from frazil.lazy_names import import_on_demand

__all__ = import_on_demand(__name__, extra="pipeline")
