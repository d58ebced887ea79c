__all__: list[str]

from frazil.pipeline.publishing.operation import PublishSummary as PublishSummary
from frazil.pipeline.publishing.operation import publish as publish
from frazil.pipeline.publishing.operation import rollback_to as rollback_to
from frazil.pipeline.publishing.operation import write_audit_publish as write_audit_publish
from frazil.repository.catalog.protection import AUDIT as AUDIT
