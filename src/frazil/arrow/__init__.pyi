__all__: list[str]

from frazil.arrow.grid_dataset import GridDataset as GridDataset
from frazil.arrow.grid_dataset import dataset as dataset
