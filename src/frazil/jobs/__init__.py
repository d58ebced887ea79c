"""Jobs: the driver plans, tasks work, one commit follows. Imports neither pyspark nor an operation.

The public names are those of shared jobs, whose tasks run in a batch system. `frazil.pipeline` has the
names of all other jobs.
"""

from frazil.lazy_names import import_on_demand

__all__ = import_on_demand(__name__, extra="pipeline")
