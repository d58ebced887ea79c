"""Arrays to arrays: other chunks, other codecs, other grids, or a part of them.

    arrays             the arrays that an operation reads and creates, as metadata; arguments and options
    block_job          the job of all operations: it computes new arrays block by block, or shares chunks
    rechunking         `rechunk`, `recompress`, `materialize`
    block_functions    `map_blocks`
    coarsening         `coarsen`, `pyramid`: statistics over windows
    regridding         `regrid`
    selection          `select`, `crop`

Each operation takes a version and returns one, and makes one commit.
"""

from frazil.lazy_names import import_on_demand

__all__ = import_on_demand(__name__, extra="pipeline")
