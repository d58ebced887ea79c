"""Type aliases for annotations."""

from frazil.repository.catalog.version_info import CommitMethod as CommitMethod
