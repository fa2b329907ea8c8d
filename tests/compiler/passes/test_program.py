"""A program is a private copy: its passes leave the traced graph as it is."""

import torch

from pocketune.compiler.capture.tracer import trace
from pocketune.compiler.passes.program import Program

from ..lowering import leaf
from .programs import program_of, run, targets


def test_what_no_wanted_node_depends_on_is_not_needed() -> None:
    def forward(x: torch.Tensor) -> list[torch.Tensor]:
        x.exp()
        return [x.sqrt().neg()]

    assert targets(program_of(forward, [leaf(3)])) == ["sqrt.default", "neg.default"]


def test_what_given_nodes_were_computed_from_is_not_looked_at() -> None:
    graph = trace(lambda x: [x.sqrt().neg()], leaf(3, grad=False))
    root, negative = (n for n in graph.nodes if n.op == "call_function")
    program = Program([negative], [root], {})
    assert targets(program) == ["neg.default"]
    torch.testing.assert_close(run(program, [torch.ones(3)]), [-torch.ones(3)])


def test_the_traced_graph_stays() -> None:
    graph = trace(lambda x: [x.sqrt().neg()], leaf(3, grad=False))
    before = str(graph)
    root, negative = (n for n in graph.nodes if n.op == "call_function")
    program = Program([negative], [node for node in graph.nodes if node.op == "placeholder"], {})
    program.replace(program.copies[negative], program.copies[root])
    assert (targets(program), str(graph)) == (["sqrt.default"], before)
