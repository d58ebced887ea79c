__all__: list[str]

from frazil.history.reports import StateChange as StateChange
from frazil.history.reports import UndoPlan as UndoPlan
from frazil.maintenance.doctor import DoctorFinding as DoctorFinding
from frazil.maintenance.doctor import DoctorReport as DoctorReport
from frazil.maintenance.hold_backs import Hold as Hold
from frazil.maintenance.plan import ChunkStorageStats as ChunkStorageStats
from frazil.maintenance.plan import GarbageFile as GarbageFile
from frazil.maintenance.plan import GarbageFiles as GarbageFiles
from frazil.maintenance.plan import GarbageReason as GarbageReason
from frazil.maintenance.plan import GCSummary as GCSummary
from frazil.maintenance.retention import RetentionReport as RetentionReport
from frazil.maintenance.retention import VersionReason as VersionReason
from frazil.maintenance.withdrawal.certificate import WithdrawalCertificate as WithdrawalCertificate
from frazil.maintenance.withdrawal.operation import Withdrawal as Withdrawal
from frazil.repository.catalog.presentation import Update as Update
from frazil.repository.catalog.presentation import UpdateType as UpdateType
from frazil.repository.catalog.version_info import LeaseInfo as LeaseInfo
