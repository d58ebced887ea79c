__all__: list[str]

from frazil.repository.catalog.version_info import CommitMethod as CommitMethod
