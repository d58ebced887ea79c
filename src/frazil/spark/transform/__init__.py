"""Arrays to arrays: other chunks, other codecs, other grids, or a part of them.

    arrays       what is read and what is made, as metadata
    cf           missing values, packing and coordinates by the CF conventions
    plan         how an array gets other chunks within a bounded memory
    rechunk      `rechunk`, `recompress`
    transfer     chunks that are taken as they are, without decoding
    materialize  `materialize`
    building     the job of operations that compute new arrays block by block:
    map_blocks   `map_blocks`
    coarsen      `coarsen`
    pyramid      `pyramid`
    regrid       `regrid`
    select       `select`, `crop`
    replicate    `copy_repository`

Each operation takes a version and returns one, and makes one commit.
"""

from frazil.spark.transform.coarsen import coarsen
from frazil.spark.transform.map_blocks import map_blocks
from frazil.spark.transform.materialize import materialize
from frazil.spark.transform.pyramid import pyramid
from frazil.spark.transform.rechunk import rechunk, recompress
from frazil.spark.transform.regrid import regrid
from frazil.spark.transform.replicate import Copied, copy_repository
from frazil.spark.transform.select import crop, select

__all__ = [
    "Copied",
    "coarsen",
    "copy_repository",
    "crop",
    "map_blocks",
    "materialize",
    "pyramid",
    "rechunk",
    "recompress",
    "regrid",
    "select",
]
