__all__: list[str]

from frazil.pipeline.definition.pipeline import Pipeline as Pipeline
from frazil.pipeline.definition.results import PastRun as PastRun
from frazil.pipeline.definition.results import PipelineGraph as PipelineGraph
from frazil.pipeline.definition.results import PipelinePlan as PipelinePlan
from frazil.pipeline.definition.results import PipelineRun as PipelineRun
from frazil.pipeline.definition.results import PipelineStatus as PipelineStatus
from frazil.pipeline.definition.results import PlannedIngest as PlannedIngest
from frazil.pipeline.definition.tables import PipelineDerived as PipelineDerived
from frazil.pipeline.definition.tables import PipelineIngest as PipelineIngest
