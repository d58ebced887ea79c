"""Arrays to arrays: other chunks, other codecs, other grids, or a part of them.

    arrays             the arrays that an operation reads and creates, as metadata; arguments and options
    targets            where results are written, and chunks that are copied without decoding
    block_job          the job of all operations: it computes new arrays block by block
    rechunking         `rechunk`, `recompress`, `materialize`
    block_functions    `map_blocks`
    coarsening         `coarsen`: statistics over windows
    pyramids           `pyramid`
    regridding         `regrid`
    selection          `select`, `crop`

Each operation takes a version and returns one, and makes one commit.
"""

from typing import TYPE_CHECKING

from frazil.lazy_names import import_on_demand

if TYPE_CHECKING:
    from frazil.pipeline.transform.block_functions import map_blocks
    from frazil.pipeline.transform.coarsening import coarsen
    from frazil.pipeline.transform.pyramids import pyramid
    from frazil.pipeline.transform.rechunking import materialize, rechunk, recompress
    from frazil.pipeline.transform.regridding import regrid
    from frazil.pipeline.transform.selection import cell, crop, select

import_on_demand(
    __name__,
    {
        "map_blocks": "frazil.pipeline.transform.block_functions",
        "coarsen": "frazil.pipeline.transform.coarsening",
        "materialize": "frazil.pipeline.transform.rechunking",
        "cell": "frazil.pipeline.transform.selection",
        "pyramid": "frazil.pipeline.transform.pyramids",
        "rechunk": "frazil.pipeline.transform.rechunking",
        "recompress": "frazil.pipeline.transform.rechunking",
        "regrid": "frazil.pipeline.transform.regridding",
        "crop": "frazil.pipeline.transform.selection",
        "select": "frazil.pipeline.transform.selection",
    },
    extra="pipeline",
)

__all__ = [
    "cell",
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
