__all__: list[str]

from frazil.arrays.element_solver import DiscardedValues as DiscardedValues
from frazil.arrays.element_solver import ElementSolver as ElementSolver
from frazil.changes.conflicts import ChangeKind as ChangeKind
from frazil.changes.conflicts import ConflictType as ConflictType
from frazil.changes.reads import StaleRead as StaleRead
from frazil.repository.session.conflicts import BasicConflictSolver as BasicConflictSolver
from frazil.repository.session.conflicts import Conflict as Conflict
from frazil.repository.session.conflicts import ConflictDetector as ConflictDetector
from frazil.repository.session.conflicts import ConflictSolver as ConflictSolver
from frazil.repository.session.conflicts import Side as Side
from frazil.repository.session.conflicts import VersionSelection as VersionSelection
