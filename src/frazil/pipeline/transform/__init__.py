"""Arrays to arrays: other chunks, other codecs, other grids, or a part of them.

    arrays           what is read and what is made, as metadata
    cf_metadata      packed arrays and their coordinates by the CF conventions
    rechunk_plan     how an array gets other chunks within a bounded memory
    rechunking       `rechunk`, `recompress`
    transfer         chunks that are copied without decoding
    materialization  `materialize`
    block_job        the job of operations that compute new arrays block by block:
    block_functions  `map_blocks`
    coarsening       `coarsen`
    pyramids         `pyramid`
    regridding       `regrid`
    selection        `select`, `crop`

Each operation takes a version and returns one, and makes one commit.
"""

from frazil.pipeline.transform.block_functions import map_blocks
from frazil.pipeline.transform.coarsening import coarsen
from frazil.pipeline.transform.materialization import materialize
from frazil.pipeline.transform.pyramids import pyramid
from frazil.pipeline.transform.rechunking import rechunk, recompress
from frazil.pipeline.transform.regridding import regrid
from frazil.pipeline.transform.selection import crop, select

__all__ = [
    "coarsen",
    "crop",
    "map_blocks",
    "materialize",
    "pyramid",
    "rechunk",
    "recompress",
    "regrid",
    "select",
]
