"""The method of ``Repository`` that looks for what makes it slow, expensive or unsafe."""

from __future__ import annotations

from frazil.maintenance.doctor import examine
from frazil.maintenance.doctor_report import DoctorFinding, DoctorReport
from frazil.repository.asynchronous import awaitable
from frazil.repository.handle.base import RepositoryBase

#: The values of the method are public, so that `frazil.ops` imports them from this room.
__all__ = ["Doctor", "DoctorFinding", "DoctorReport"]


class Doctor(RepositoryBase):
    """The method of ``Repository`` that finds what its owner should do."""

    def doctor(self) -> DoctorReport:
        """Look for what makes the repository slow, expensive or unsafe, and for the command that fixes it.

        The method looks at small chunk files, backups, manifests that are too large or too many, stale
        leases, staged files of jobs that cannot be resumed, virtual chunks without a container, and protected
        branches that another writer has moved. It lists the chunk files and reads the manifests of all
        branches. It changes nothing. ``verify`` answers another question: whether the files are correct.

        Returns:
            The findings. ``print`` shows each with its command.

        Raises:
            FormatError: If a file is damaged. ``verify`` names all damaged files.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> print(repo.doctor(), end="")
            no findings in 8 checks
        """
        return examine(self._context)

    doctor_async = awaitable(doctor)
