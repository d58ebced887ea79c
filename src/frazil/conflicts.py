"""The conflicts of a rebase or merge, and the solvers that decide them."""

from frazil.arrays.element_solver import DiscardedValues, ElementSolver
from frazil.changes.conflicts import ChangeKind, ConflictType
from frazil.changes.node_changes import StaleRead
from frazil.repository.session.conflicts import (
    BasicConflictSolver,
    Conflict,
    ConflictDetector,
    ConflictSolver,
    Side,
    VersionSelection,
)

__all__ = [
    "BasicConflictSolver",
    "ChangeKind",
    "Conflict",
    "ConflictDetector",
    "ConflictSolver",
    "ConflictType",
    "DiscardedValues",
    "ElementSolver",
    "Side",
    "StaleRead",
    "VersionSelection",
]
