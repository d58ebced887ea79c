__all__: list[str]

from frazil.jobs.shared_job import MissingTask as MissingTask
from frazil.jobs.shared_job import SharedJob as SharedJob
from frazil.jobs.shared_job import open_shared as open_shared
from frazil.jobs.shared_job import shared as shared
