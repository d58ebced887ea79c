__all__: list[str]

from frazil.importing.importer import upgrade as upgrade
from frazil.importing.report import ImportReport as ImportReport
