"""Names of implementations, and their packages."""

SPARK, ONE, PROCESSES = "Spark", "one process", "two processes"
DASK = "dask + icechunk"
DASK_PROCESSES = "dask (2 processes) + icechunk"
XARRAY = "xarray in memory + icechunk"
NAIVE = "dask + icechunk, naive"
REFERENCE_ON_SPARK = "icechunk in mapInArrow"
NUMPY = "numpy"
SERIAL = "one by one"
PARQUET = "Parquet"
CONSTANT = "constant batches"
PLAIN = "plain PySpark"
REFERENCE = "icechunk"
FULL = "one process, in full"
CUBED = "Cubed on icechunk"
SLOTS = {"1 slot": 1, "2 slots": 2, "4 slots": 4}

PACKAGES_OF_PIPELINE = {
    SPARK: "pyspark",
    ONE: "frazil",
    PROCESSES: "frazil",
    DASK: "dask",
    NAIVE: "dask",
    DASK_PROCESSES: "distributed",
    XARRAY: "xarray",
    FULL: "frazil",
    CUBED: "cubed",
    REFERENCE_ON_SPARK: "pyspark",
    SERIAL: "frazil",
    PARQUET: "pyspark",
    CONSTANT: "pyspark",
    PLAIN: "pyspark",
    **dict.fromkeys(SLOTS, "pyspark"),
}
