"""Arrays as tables of Arrow, for DuckDB, Polars, DataFusion and pyarrow. No engine needs a JVM.

    dataset         the rows of a group, as a dataset that the engines scan
    GridDataset     its class

pyarrow is imported when a program uses one of these names.
"""

from frazil.lazy_names import import_on_demand

__all__ = import_on_demand(__name__, extra="arrow")
