__all__: list[str]

from frazil.arrow.grid import Selection as Selection
from frazil.pipeline import *
from frazil.spark.catalog import Catalog as Catalog
from frazil.spark.data_source import map_chunks as map_chunks
from frazil.spark.data_source import read as read
from frazil.spark.data_source import read_stream as read_stream
from frazil.spark.data_source import register as register
from frazil.spark.data_source import scan as scan
from frazil.spark.data_source import write_stream as write_stream
from frazil.spark.runtime.on_spark import OnSpark as OnSpark
from frazil.spark.runtime.session import get_spark as get_spark
from frazil.spark.runtime.session import ready as ready
from frazil.spark.runtime.settings import settings as settings
from frazil.spark.streams.sink import foreach_batch as foreach_batch
from frazil.spark.tables.options import create_table_statement as create_table_statement
from frazil.spark.tables.scan import Split as Split
from frazil.spark.tables.write_table import write_table as write_table
