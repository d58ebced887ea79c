__all__: list[str]

from frazil.importing.importer import ImportReport as ImportReport
from frazil.importing.importer import upgrade as upgrade
