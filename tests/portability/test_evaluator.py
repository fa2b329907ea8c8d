"""ONNX's own evaluator, in numpy, computes every graph: an oracle without torch and runtimes."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops import op_conv_transpose

from .cases import NAMES, Case, case


class ConvTranspose(op_conv_transpose.ConvTranspose):
    """Group by group: onnx 1.23 mixes the channels of groups that have several outputs."""

    op_domain = ""

    def _run(self, x: Any, w: Any, *args: Any, group: int = 1, **attributes: Any) -> tuple[Any]:
        parts = [
            super(ConvTranspose, self)._run(*pair, *args, group=1, **attributes)[0]
            for pair in zip(np.split(x, group, 1), np.split(w, group), strict=True)
        ]
        return (np.concatenate(parts, axis=1),)


SIMPLER = {"bias", "calibrate", "last"}
"""Methods whose graphs have no operators that those of `full` and `norm` do not have."""


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SIMPLER])
def test_every_graph(name: str) -> None:
    made = case(name)
    for graph, model in made.models.items():
        made.check(graph, evaluated(model, made, graph))


def evaluated(model: onnx.ModelProto, made: Case, graph: str) -> dict[str, Any]:
    evaluator = ReferenceEvaluator(model, new_ops=[ConvTranspose])
    values = evaluator.run(None, dict(made.feeds[graph]))
    return dict(zip(evaluator.output_names, map(np.asarray, values), strict=True))
