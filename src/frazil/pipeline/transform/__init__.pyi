__all__: list[str]

from frazil.pipeline.transform.block_functions import map_blocks as map_blocks
from frazil.pipeline.transform.coarsening import coarsen as coarsen
from frazil.pipeline.transform.coarsening import pyramid as pyramid
from frazil.pipeline.transform.programs import map_datasets as map_datasets
from frazil.pipeline.transform.rechunking import materialize as materialize
from frazil.pipeline.transform.rechunking import rechunk as rechunk
from frazil.pipeline.transform.rechunking import recompress as recompress
from frazil.pipeline.transform.regridding import regrid as regrid
from frazil.pipeline.transform.selection import cell as cell
from frazil.pipeline.transform.selection import crop as crop
from frazil.pipeline.transform.selection import select as select
