"""Tasks: what a network learns, one file for each. Numpy only."""

from pocketune.tasks.attributes import Attributes
from pocketune.tasks.base import TASKS, Box, Task, View, numbered, register_task, task_named
from pocketune.tasks.classification import Classification, default_task
from pocketune.tasks.results import Evaluation, Labels, Metric, Prediction, Score

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
    "Task",
    "View",
    "default_task",
    "numbered",
    "register_task",
    "task_named",
]
