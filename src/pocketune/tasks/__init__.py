"""Tasks: what a network learns, one file for each. Numpy only."""

from pocketune.tasks.attributes import Attributes
from pocketune.tasks.base import TASKS, Task, list_tasks, numbered, register_task, task_named
from pocketune.tasks.classification import Classification, default_task
from pocketune.tasks.results import Evaluation, Labels, Metric, Prediction, Score
from pocketune.tasks.segmentation import Segmentation
from pocketune.tasks.views import Box, Seen, View

__all__ = [
    "TASKS",
    "Attributes",
    "Box",
    "Classification",
    "Evaluation",
    "Labels",
    "Metric",
    "Prediction",
    "Score",
    "Seen",
    "Segmentation",
    "Task",
    "View",
    "default_task",
    "list_tasks",
    "numbered",
    "register_task",
    "task_named",
]
