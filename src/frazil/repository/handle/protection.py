"""The methods of ``Repository`` for protected branches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from frazil.errors import ErrorKind, InvalidInputError
from frazil.remedies import call
from frazil.repository.catalog import repo_changes
from frazil.repository.catalog.protection import PROTECTION, BranchProtection, read_protections
from frazil.repository.catalog.repo_requirements import branch_tip
from frazil.repository.clock import now_us
from frazil.repository.handle.base import RepositoryBase

#: A pattern with one of these also protects branches that are created later.
_WILDCARDS: Final = frozenset("*?[")


class Protection(RepositoryBase):
    """Methods of ``Repository`` that protect branches from mistakes."""

    def protect_branch(
        self,
        pattern: str,
        *,
        principals: Sequence[str] = (),
        fast_forward_only: bool = True,
        rules: Sequence[Any] = (),
    ) -> BranchProtection:
        """Protect all branches whose names match a pattern, or replace their protection.

        Every update of the repository through Frazil obeys the rules: commits, amendments, merges, resets,
        deletions, squashes and undo. A protected branch cannot be deleted. An update that breaks a rule
        raises ``SessionStateError`` (``branch-protected``) and changes nothing.

        The rules prevent mistakes, and are no access control. Other implementations ignore them;
        ``doctor`` shows what they did.

        Args:
            pattern: The name of a branch, or a pattern with ``*``, ``?`` and ``[...]``.
            principals: The names of those who may move the branches, and change the protection. A handle acts
                for the ``principal`` of its ``Attribution``, else for the user of its process. Default:
                everybody.
            fast_forward_only: Whether a branch only moves to versions that contain its tip.
            rules: The rules of ``frazil.pipeline`` that must hold in each new version. Only
                ``frazil.pipeline.write_audit_publish`` can move the branch then. Default: none.

        Returns:
            The protection.

        Raises:
            InvalidInputError: ``invalid-ref-name`` for an empty pattern.
            RefNotFoundError: ``ref-not-found`` for a name without wildcards that is no branch.
            SessionStateError: ``branch-protected`` if the pattern has a protection that others may change.
            ReadOnlyError: ``read-only-repository`` if the status of the repository is read-only.
            FormatError: ``unsupported-spec-version`` if the repository has spec version 1.

        Examples:
            >>> import frazil, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="a group") as store:
            ...     group = zarr.create_group(store, path="g")
            >>> protection = repo.protect_branch("main")
            >>> repo.reset_branch("main", "1CECHNKREP0F1RSTCMT0")
            Traceback (most recent call last):
            ...
            frazil.errors.SessionStateError: the branch `main` cannot move from ...
        """
        self._context.require_version_2()
        if not pattern:
            raise InvalidInputError(
                "the pattern of branch names must not be empty, got ''. Pass the name of a branch, or `*`",
                ErrorKind.INVALID_REF_NAME,
            )
        if _WILDCARDS.isdisjoint(pattern):
            branch_tip(self._context.catalog.repo_info(), pattern)  # a mistake in a name protects nothing
        protection = BranchProtection(
            pattern=pattern,
            principals=tuple(principals),
            fast_forward_only=fast_forward_only,
            rules=tuple(rule if isinstance(rule, Mapping) else rule.as_dict() for rule in rules),
            since=now_us(),
        )

        def add(metadata: dict[str, Any]) -> dict[str, Any]:
            others = {each.pattern: each.document() for each in read_protections(metadata)}
            return {**metadata, PROTECTION: {**others, pattern: protection.document()}}

        self._context.catalog.update_repo_info(repo_changes.set_metadata(add))
        return protection

    def unprotect_branch(self, pattern: str) -> None:
        """Remove the protection of a pattern.

        Args:
            pattern: The pattern, exactly as ``protect_branch`` got it.

        Raises:
            InvalidInputError: ``invalid-argument`` if the pattern has no protection.
            SessionStateError: ``branch-protected`` if only others may change it.
            ReadOnlyError: ``read-only-repository`` if the status of the repository is read-only.
            FormatError: ``unsupported-spec-version`` if the repository has spec version 1.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> protection = repo.protect_branch("main")
            >>> repo.unprotect_branch("main")
            >>> repo.branch_protections()
            []
        """
        self._context.require_version_2()

        def remove(metadata: dict[str, Any]) -> dict[str, Any]:
            others = {each.pattern: each.document() for each in read_protections(metadata)}
            if others.pop(pattern, None) is None:
                raise InvalidInputError(
                    f"no protection has the pattern `{pattern}`", ErrorKind.INVALID_ARGUMENT
                ).with_remedy("`{}` lists them", call("branch_protections"))
            left = {name: value for name, value in metadata.items() if name != PROTECTION}
            return {**left, PROTECTION: others} if others else left

        self._context.catalog.update_repo_info(repo_changes.set_metadata(remove))

    def branch_protections(self) -> list[BranchProtection]:
        """Return the protections of branches, by pattern.

        Returns:
            The protections.

        Raises:
            FormatError: ``unsupported-spec-version`` if the repository has spec version 1. Another kind if
                another program has damaged the rules.

        Examples:
            >>> import frazil
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> protection = repo.protect_branch("release-*", principals=["ada"])
            >>> [each.principals for each in repo.branch_protections()]
            [('ada',)]
        """
        return read_protections(self._info_v2().metadata)
