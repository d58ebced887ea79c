"""Numbers with CF units as times, and times as such numbers, by xarray.

xarray and pandas take most of a second to import, and many tables have no times. Therefore other modules
reach this one through `frazil.spark.tables`, which imports it on demand.
"""

from xarray.coding.times import (
    decode_cf_datetime,
    decode_cf_timedelta,
    encode_cf_datetime,
    encode_cf_timedelta,
)

__all__ = ["decode_cf_datetime", "decode_cf_timedelta", "encode_cf_datetime", "encode_cf_timedelta"]
