"""The methods of ``Repository`` for leases, which protect files from garbage collection."""

from __future__ import annotations

from frazil.errors import ErrorKind, InvalidInputError
from frazil.remedies import call
from frazil.repository.asynchronous import awaitable
from frazil.repository.catalog.leases import LEASES, lease_info, leases
from frazil.repository.catalog.version_info import LeaseInfo
from frazil.repository.handle.base import RepositoryBase
from frazil.repository.handle.opening import require_writable
from frazil.repository.session.staged_work import give_up, place_of_lease


class Leases(RepositoryBase):
    """Methods of ``Repository`` that list and break leases."""

    def list_leases(self) -> list[LeaseInfo]:
        """Return the leases that sessions with forks and resumable jobs hold.

        A garbage collection spares all files that are not older than the oldest lease. A lease that has ended
        is listed until the next collection deletes it.

        Returns:
            The leases, oldest first.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> fork = repo.writable_session("main").fork()
            >>> [lease.purpose for lease in repo.list_leases()]
            ['fork']
        """
        return list(map(lease_info, leases(self._context.storage)))

    def break_lease(self, lease_id: str | None = None, *, name: str | None = None) -> None:
        """Delete a lease whose holder will not return, for example of an abandoned fork or a killed process.

        Exactly one of ``lease_id`` and ``name`` names the lease. All leases with this name are deleted.

        The holder is not asked. If it still works and a garbage collection deletes its files, its commit is
        refused (``garbage-collected``). No version ever refers to files that are gone. For the lease of a
        job, the method also deletes what the job has staged, as ``frazil.spark.discard_job`` does. The job
        cannot be resumed afterwards.

        Args:
            lease_id: The ``id`` of a lease from ``list_leases``.
            name: The name of a session or the id of a job: ``name`` of a lease from ``list_leases``.

        Raises:
            InvalidInputError: ``not-allowed`` if there is no lease with this id or name.
            ValueError: If none or both of the arguments are given.
            ReadOnlyError: ``read-only-storage`` if the storage is read-only.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> fork = repo.writable_session("main").fork()
            >>> repo.break_lease(repo.list_leases()[0].id)
            >>> repo.list_leases()
            []
        """
        storage = self._context.storage
        require_writable(storage)
        if (lease_id is None) == (name is None):
            raise ValueError(f"expected exactly one of lease_id and name, got {lease_id!r} and {name!r}")
        held = leases(storage)
        if name is None:
            held = [lease for lease in held if lease.key == f"{LEASES}/{lease_id}"]
        else:
            held = [lease for lease in held if name and lease.name == name]
        if not held:
            argument, value = ("lease_id", lease_id) if name is None else ("name", name)
            raise InvalidInputError(
                f"{argument} must be the {argument.removeprefix('lease_')} of a lease of this repository, "
                f"got {value!r}. The holder may have returned the lease",
                ErrorKind.NOT_ALLOWED,
            ).with_remedy("`{}` lists the leases", call("list_leases"))
        for lease in held:
            place = place_of_lease(lease.key)
            if place is None:
                storage.delete([lease.key])
            else:
                give_up(storage, place)

    list_leases_async = awaitable(list_leases)
    break_lease_async = awaitable(break_lease)
