"""Pipelines: files to arrays, arrays to arrays and statistics, validation, publishing, lineage.

    ingest         many files become one dataset
    transform      arrays to arrays: rechunk, map_blocks, coarsen, regrid, ...
    reductions     statistics along dimensions, of groups, zones and periods
    validation     rules about data, and reports of the rules that fail
    publishing     write, audit, publish; roll back
    provenance     lineage: the inputs and outputs of jobs
    replication    copies, clones and exports of repositories

`frazil.jobs` has the parts that every operation consists of: a job, which is prepared, run by tasks, and
committed; and engines, which run tasks in this thread, in processes of this machine, or on Spark.

Each operation takes an ``engine``. The default is Spark where Spark is in use, else processes of this
machine. The modules of this package do not import pyspark; `frazil.spark` does.

>>> import frazil, numpy, zarr
>>> from frazil.pipeline import Target, mean
>>> repo = frazil.Repository.create(frazil.in_memory_storage())
>>> with repo.transaction("main", message="an array") as store:
...     array = zarr.create_array(
...         store, name="t", data=numpy.array([[1.0, 3.0]]), dimension_names=["y", "x"]
...     )
>>> result = mean(repo, "t", "x", to=Target(repo, "main", "/mean"), engine="inline")
>>> zarr.open_array(result.version.session().store, path="/mean/t")[:].tolist()
[2.0]
"""

from frazil.lazy_names import import_on_demand

__all__ = import_on_demand(__name__, extra="pipeline")
