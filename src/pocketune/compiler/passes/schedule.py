"""How much memory a graph's tensors need, and an order of its nodes that needs little.

The device makes the runtime execute nodes in the file's order. Each tensor is freed after its last
reader, so the order decides the peak. Counted here is what a run allocates; the device counts graph
inputs, initializers and the outputs that it keeps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import onnx

from pocketune.compiler.passes.sizes import tensor_bytes

# results that share their input's memory
_VIEWS = {"Reshape", "Identity", "Squeeze", "Unsqueeze", "Flatten"}


@dataclass(frozen=True)
class Liveness:
    """Sizes and lifetimes of a graph's tensors."""

    bytes: Mapping[str, int]
    outputs: frozenset[str]
    alias: Mapping[str, str]

    @classmethod
    def of(cls, model: onnx.ModelProto, sizes: Mapping[str, int]) -> "Liveness":
        """The lifetimes in a model whose open dimensions have these `sizes`."""
        alias: dict[str, str] = {}
        for node in model.graph.node:
            if node.op_type in _VIEWS:
                alias[node.output[0]] = alias.get(node.input[0], node.input[0])
        outputs = frozenset(alias.get(o.name, o.name) for o in model.graph.output)
        return cls(tensor_bytes(model, sizes), outputs, alias)

    def timeline(self, nodes: Sequence[onnx.NodeProto]) -> list[int]:
        """Live bytes while each node runs, in order."""
        last: dict[str, int] = {}
        for i, node in enumerate(nodes):
            for name in (*node.input, *node.output):
                last[self.alias.get(name, name)] = i
        live, line = 0, []
        ends: dict[int, list[str]] = {}
        for name, i in last.items():
            if name not in self.outputs:
                ends.setdefault(i, []).append(name)
        for i, node in enumerate(nodes):
            live += sum(self.bytes.get(n, 0) for n in node.output if n not in self.alias)
            line.append(live)
            live -= sum(self.bytes.get(name, 0) for name in ends.get(i, ()))
        return line

    def peak(self, nodes: Sequence[onnx.NodeProto]) -> int:
        """Most bytes live at once."""
        return max(self.timeline(nodes), default=0)


def fused_peak(model: onnx.ModelProto, sizes: Mapping[str, int]) -> int:
    """Peak in bytes of a quantized graph in its order, as the runtime fuses it."""
    return fused(model, sizes).peak(model.graph.node)


def fused(model: onnx.ModelProto, sizes: Mapping[str, int]) -> Liveness:
    """The lifetimes in a quantized graph, as the runtime fuses it.

    An operator between DequantizeLinear and QuantizeLinear becomes one integer operator: the float
    tensors between them are never made.
    """
    nodes = list(model.graph.node)
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    dequantized = {n.output[0] for n in nodes if n.op_type == "DequantizeLinear"}

    def integer(node: onnx.NodeProto) -> bool:
        read = readers.get(node.output[0], [])
        requantized = read and all(reader.op_type == "QuantizeLinear" for reader in read)
        return bool(requantized) and dequantized.issuperset(node.input)

    plain = Liveness.of(model, sizes)
    made, alias = dict(plain.bytes), dict(plain.alias)
    for node in nodes:
        (output, *_), read = node.output, readers.get(node.output[0], [])
        if integer(node):
            made[output] = made[read[0].output[0]]
            alias.update((reader.output[0], output) for reader in read)
        elif read and output in dequantized and all(map(integer, read)):
            alias[output] = alias.get(node.input[0], node.input[0])
    return Liveness(made, plain.outputs, alias)


def order_for_memory(model: onnx.ModelProto, sizes: Mapping[str, int]) -> int:
    """Reorder the model's nodes in place for the lowest peak found; returns that peak in bytes.

    Constants that are stored in 8 bits are dequantized right before their reader.
    """
    real = Liveness.of(model, sizes)
    constants = {tensor.name for tensor in model.graph.initializer}
    unpacked = {n.output[0]: n for n in model.graph.node if _unpacks(n, constants)}
    liveness = replace(real, bytes={**real.bytes, **dict.fromkeys(unpacked, 0)})
    traced = [node for node in model.graph.node if node.output[0] not in unpacked]
    late = _as_late_as_possible(traced)
    bases = [traced, late, _masks_early(traced), _masks_early(late)]
    candidates = [*bases, *(_shrink_early(order, liveness) for order in bases)]
    candidates.append(_greedy(traced, liveness))
    best = min((_unpack_late(order, unpacked) for order in candidates), key=real.peak)
    del model.graph.node[:]
    model.graph.node.extend(best)
    return real.peak(best)


def _unpacks(node: onnx.NodeProto, constants: set[str]) -> bool:
    return node.op_type == "DequantizeLinear" and constants.issuperset(node.input)


def _unpack_late(
    nodes: Sequence[onnx.NodeProto], unpacked: Mapping[str, onnx.NodeProto]
) -> list[onnx.NodeProto]:
    left, order = dict(unpacked), list[onnx.NodeProto]()
    for node in nodes:
        order.extend(left.pop(name) for name in node.input if name in left)
        order.append(node)
    return [*order, *left.values()]  # those that are outputs of the graph, and read by no node


def _producers(nodes: Sequence[onnx.NodeProto]) -> dict[str, int]:
    return {name: i for i, node in enumerate(nodes) for name in node.output}


def _as_late_as_possible(nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Depth-first from each last node: every node right before its first reader."""
    producer, done, order = _producers(nodes), set[int](), list[onnx.NodeProto]()
    read = {name for node in nodes for name in node.input}

    def visit(index: int) -> None:
        stack = [(index, False)]
        while stack:
            i, expanded = stack.pop()
            if i in done:
                continue
            if expanded:
                done.add(i)
                order.append(nodes[i])
                continue
            stack.append((i, True))
            sources = sorted({producer[n] for n in nodes[i].input if n in producer} - done)
            stack.extend((s, False) for s in reversed(sources))

    for i, node in enumerate(nodes):
        if not any(name in read for name in node.output):
            visit(i)
    for i in range(len(nodes)):
        visit(i)
    return order


_MASKS = {"Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal", "And", "Or", "Not"}


def _masks_early(nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Run comparisons as early as possible: a mask is a quarter of its tensor."""
    producer, placed, order = _producers(nodes), set[str](), list[onnx.NodeProto]()
    pending = {node.output[0]: node for node in nodes if node.op_type in _MASKS}

    def place(node: onnx.NodeProto) -> None:
        for name in node.input:  # no node has run yet behind which a mask of the inputs would be
            if name in pending:
                place(pending.pop(name))
        order.append(node)
        placed.update(node.output)

    for node in nodes:
        if node.op_type in _MASKS:
            continue
        place(node)
        for mask in list(pending.values()):
            if all(name in placed or name not in producer for name in mask.input):
                place(pending.pop(mask.output[0]))
    while pending:
        place(pending.pop(next(iter(pending))))
    return order


def _greedy(nodes: Sequence[onnx.NodeProto], liveness: Liveness) -> list[onnx.NodeProto]:
    """Run the ready node that leaves the least memory, and among equals the first."""
    return _list_schedule(nodes, liveness, greedy=True)


def _shrink_early(nodes: Sequence[onnx.NodeProto], liveness: Liveness) -> list[onnx.NodeProto]:
    """Keep the order, but run nodes that free more than they allocate as soon as possible."""
    return _list_schedule(nodes, liveness, greedy=False)


def _list_schedule(
    nodes: Sequence[onnx.NodeProto], liveness: Liveness, *, greedy: bool
) -> list[onnx.NodeProto]:
    producer = _producers(nodes)
    root = liveness.alias
    readers: dict[str, set[int]] = {}
    waiting, consumers = [], [list[int]() for _ in nodes]
    for i, node in enumerate(nodes):
        sources = {producer[n] for n in node.input if n in producer}
        waiting.append(len(sources))
        for s in sources:
            consumers[s].append(i)
        for name in node.input:
            readers.setdefault(root.get(name, name), set()).add(i)

    def growth(i: int) -> int:
        node = nodes[i]
        made = sum(liveness.bytes.get(n, 0) for n in node.output if n not in root)
        freed = sum(
            liveness.bytes.get(name, 0)
            for name in {root.get(n, n) for n in node.input}
            if readers[name] == {i} and name not in liveness.outputs
        )
        return made - freed

    costs = {i: growth(i) for i, count in enumerate(waiting) if count == 0}  # by ready node
    order = []
    while costs:
        best = min(costs, key=lambda i: (costs[i], i))
        chosen = best if greedy or costs[best] <= 0 else min(costs)
        del costs[chosen]
        order.append(nodes[chosen])
        for name in {root.get(name, name) for name in nodes[chosen].input}:
            readers[name].discard(chosen)
            if len(readers[name]) == 1:  # the last reader now frees it
                costs.update((i, growth(i)) for i in readers[name] if i in costs)
        for c in consumers[chosen]:
            waiting[c] -= 1
            if waiting[c] == 0:
                costs[c] = growth(c)
    return order
