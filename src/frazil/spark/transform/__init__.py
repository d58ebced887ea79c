"""Arrays to arrays: other chunks, other codecs, other grids.

    arrays      what is read and what is made, as metadata
    plan        how an array gets other chunks within a bounded memory
    rechunk     `rechunk`, `recompress`
    transfer    chunks that are taken as they are, without decoding

Each operation takes a version and returns one, and makes one commit.
"""

from frazil.spark.transform.coarsen import coarsen
from frazil.spark.transform.map_blocks import map_blocks
from frazil.spark.transform.rechunk import rechunk, recompress

__all__ = ["coarsen", "map_blocks", "rechunk", "recompress"]
