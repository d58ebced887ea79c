"""Reductions of arrays: states of leaves, combined in a tree whose shape follows from positions.

The arithmetic of each statistic is in `frazil.answers.kernels`.

fields, zones   arrays, their coordinates and groups; labels from polygons
plan            what is computed, and how cells are divided: slabs, units, leaves, levels of states
tasks           the work of tasks: what they read, and how they fold it to states and results
reduction_job   the operation, its options, weights, and the arrays that it makes
functions       the operations; `anomaly` is in anomalies
"""

from frazil.lazy_names import import_on_demand

__all__ = import_on_demand(__name__, extra="pipeline")
