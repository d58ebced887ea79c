__all__: list[str]

from frazil.jobs.blocks import Limits as Limits
from frazil.pipeline.reductions.anomalies import anomaly as anomaly
from frazil.pipeline.reductions.functions import climatology as climatology
from frazil.pipeline.reductions.functions import count as count
from frazil.pipeline.reductions.functions import groupby as groupby
from frazil.pipeline.reductions.functions import max as max
from frazil.pipeline.reductions.functions import mean as mean
from frazil.pipeline.reductions.functions import min as min
from frazil.pipeline.reductions.functions import quantile as quantile
from frazil.pipeline.reductions.functions import reduce as reduce
from frazil.pipeline.reductions.functions import resample as resample
from frazil.pipeline.reductions.functions import std as std
from frazil.pipeline.reductions.functions import sum as sum
from frazil.pipeline.reductions.functions import zonal_stats as zonal_stats
from frazil.pipeline.reductions.reduction_job import ReductionOptions as ReductionOptions
