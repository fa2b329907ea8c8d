"""ONNX's own evaluator, in numpy, computes every graph: an oracle without torch and runtimes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops import op_conv_transpose

from pocketune.device.engine.session import open_session

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


STEPS, RATE = 20, 0.05
OF_A_RUN = 5e-4
"""Largest difference after a run, as a share of a tensor's largest magnitude: errors add up."""


@pytest.mark.parametrize("name", ["full", "last"])
def test_a_run(name: str) -> None:
    """Steps of SGD with either's own gradients; losses, parameters and statistics stay close."""
    made = case(name)
    step = made.models["step"]
    evaluator = ReferenceEvaluator(step, new_ops=[ConvTranspose])
    session = open_session(step.SerializeToString(), as_written=True)
    losses, ends = zip(*(trained(made, run) for run in (evaluator.run, session.run)), strict=True)
    assert losses[1][-1] < losses[1][0] - 0.1
    np.testing.assert_allclose(*losses, rtol=OF_A_RUN)
    for key, end in ends[1].items():
        error = np.abs(ends[0][key] - end).max()
        assert error <= OF_A_RUN * np.abs(end).max(), f"{key} is off by {error:.1e}"


def trained(made: Case, run: Callable[..., list[Any]]) -> tuple[list[float], dict[str, Any]]:
    """The losses of some steps on the same batch, and what they have changed."""
    feeds = dict(made.feeds["step"])
    names = [value.name for value in made.models["step"].graph.output]
    losses = []
    for _ in range(STEPS):
        outputs = dict(zip(names, run(None, feeds), strict=True))
        losses.append(float(outputs["loss"]))
        for name, value in outputs.items():
            kind, _, of = name.partition(".")
            if kind == "grad":
                feeds[of] = (feeds[of] - RATE * value).astype(np.float32)
            elif kind == "new":
                feeds[of] = np.asarray(value)
    changed = [name for name in feeds if {f"grad.{name}", f"new.{name}"} & set(names)]
    return losses, {name: feeds[name] for name in changed}
