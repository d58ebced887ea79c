"""Arrays to arrays: other chunks, other codecs, other grids, or a part of them.

    arrays         what is read and what is made, as metadata
    cf             packed arrays and their coordinates by the CF conventions
    plan           how an array gets other chunks within a bounded memory
    rechunking     `rechunk`, `recompress`
    transfer       chunks that are taken as they are, without decoding
    materializing  `materialize`
    building       the job of operations that compute new arrays block by block:
    mapping        `map_blocks`
    coarsening     `coarsen`
    pyramids       `pyramid`
    regridding     `regrid`
    selection      `select`, `crop`
    replicas       `copy_repository`

Each operation takes a version and returns one, and makes one commit.
"""

from frazil.spark.transform.coarsening import coarsen
from frazil.spark.transform.mapping import map_blocks
from frazil.spark.transform.materializing import materialize
from frazil.spark.transform.pyramids import pyramid
from frazil.spark.transform.rechunking import rechunk, recompress
from frazil.spark.transform.regridding import regrid
from frazil.spark.transform.replicas import Copied, copy_repository
from frazil.spark.transform.selection import crop, select

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
