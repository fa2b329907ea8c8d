"""An order of a graph's nodes that needs little memory.

The device makes the runtime execute nodes in the file's order. Each tensor is freed after its last
reader, so the order decides how many are live at once, and the gaps that they leave in the arena.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from math import inf

import onnx

from pocketune.compiler.passes.arena import arena_bytes
from pocketune.compiler.passes.liveness import Liveness, Operator


def order_for_memory(model: onnx.ModelProto, size: Mapping[str, int]) -> int:
    """Reorder the model's nodes in place for the smallest arena found; returns its bytes.

    Constants that are stored in 8 bits are dequantized right before their reader.

    Args:
        model: Sorted topologically.
        size: Bytes of its tensors.
    """
    real = Liveness.sized(model, size)
    constants = {tensor.name for tensor in model.graph.initializer}
    nodes = {node.output[0]: node for node in model.graph.node}
    operators = list(map(Operator.of, model.graph.node))
    unpacked = {n.output[0]: n for n in operators if _unpacks(n, constants)}
    liveness = replace(real, bytes={**real.bytes, **dict.fromkeys(unpacked, 0)})
    traced = [node for node in operators if node.output[0] not in unpacked]
    late = _as_late_as_possible(traced)
    bases = [traced, late]
    if any(node.op_type in _MASKS for node in traced):
        bases += [_masks_early(traced), _masks_early(late)]
    candidates = [*bases, *(_shrink_early(order, liveness) for order in bases)]
    candidates.append(_greedy(traced, liveness))
    orders = [_unpack_late(each, unpacked) for each in candidates]
    arena, place = _best(real, orders)
    ordered = [nodes[node.output[0]] for node in orders[place]]
    del model.graph.node[:]
    model.graph.node.extend(ordered)
    return arena


def _best(liveness: Liveness, orders: Sequence[Sequence[Operator]]) -> tuple[int, int]:
    """The smallest arena of any order, and the index of that order; of equals, the lowest peak."""
    arena, peak, best = inf, inf, 0
    for place, order in enumerate(orders):
        needed = arena_bytes(liveness, order, most=arena)
        if needed < arena or (needed == arena and liveness.peak(order) < peak):
            arena, peak, best = needed, liveness.peak(order), place
    return int(arena), best


def _unpacks(node: Operator, constants: set[str]) -> bool:
    return node.op_type == "DequantizeLinear" and constants.issuperset(node.input)


def _unpack_late(nodes: Sequence[Operator], unpacked: Mapping[str, Operator]) -> list[Operator]:
    left, order = dict(unpacked), list[Operator]()
    for node in nodes:
        order.extend(left.pop(name) for name in node.input if name in left)
        order.append(node)
    return [*order, *left.values()]  # those that are outputs of the graph, and read by no node


def _producers(nodes: Sequence[Operator]) -> dict[str, int]:
    return {name: i for i, node in enumerate(nodes) for name in node.output}


def _as_late_as_possible(nodes: Sequence[Operator]) -> list[Operator]:
    """Depth-first from each last node: every node right before its first reader."""
    producer, done, order = _producers(nodes), set[int](), list[Operator]()
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


def _masks_early(nodes: Sequence[Operator]) -> list[Operator]:
    """Run comparisons as early as possible: a mask is a quarter of its tensor."""
    producer, placed, order = _producers(nodes), set[str](), list[Operator]()
    pending = {node.output[0]: node for node in nodes if node.op_type in _MASKS}
    names = list(pending)
    missing = [len({*node.input} & producer.keys()) for node in pending.values()]
    waiting: dict[str, list[int]] = {}
    for i, node in enumerate(pending.values()):
        for name in {*node.input} & producer.keys():
            waiting.setdefault(name, []).append(i)
    ready = [i for i, count in enumerate(missing) if count == 0]  # a heap

    def place(node: Operator) -> None:
        for name in node.input:  # no node has run yet behind which a mask of the inputs would be
            if name in pending:
                place(pending.pop(name))
        order.append(node)
        for name in set(node.output) - placed:
            placed.add(name)
            for i in waiting.get(name, ()):
                missing[i] -= 1
                if missing[i] == 0:
                    heappush(ready, i)

    for node in nodes:
        if node.op_type in _MASKS:
            continue
        place(node)
        while ready:
            mask = pending.pop(names[heappop(ready)], None)
            if mask is not None:
                place(mask)
    while pending:
        place(pending.pop(next(iter(pending))))
    return order


def _greedy(nodes: Sequence[Operator], liveness: Liveness) -> list[Operator]:
    """Run the ready node that leaves the least memory, and among equals the first."""
    return _list_schedule(nodes, liveness, greedy=True)


def _shrink_early(nodes: Sequence[Operator], liveness: Liveness) -> list[Operator]:
    """Keep the order, but run nodes that free more than they allocate as soon as possible."""
    return _list_schedule(nodes, liveness, greedy=False)


def _list_schedule(
    nodes: Sequence[Operator], liveness: Liveness, *, greedy: bool
) -> list[Operator]:
    """Run one ready node after the other.

    Chosen is the node that leaves the least memory, and among equals the first; not greedily, the
    first ready node wherever no node leaves less memory than before.
    """
    ready = _Ready(nodes, liveness)
    order = []
    while ready.costs:
        cost, best = ready.cheapest()
        chosen = best if greedy or cost <= 0 else ready.first()
        order.append(nodes[chosen])
        ready.run(chosen)
    return order


class _Ready:
    """The nodes that can run next, and the bytes that each would leave in addition.

    Attributes:
        costs: By the index of the node; negative if it frees more than it allocates.
    """

    def __init__(self, nodes: Sequence[Operator], liveness: Liveness) -> None:
        producer, root = _producers(nodes), liveness.alias
        self._made = [
            sum(liveness.bytes.get(n, 0) for n in node.output if n not in root) for node in nodes
        ]
        self._read = [{root.get(name, name) for name in node.input} for node in nodes]
        self._freed = {
            name: 0 if name in liveness.outputs else liveness.bytes.get(name, 0)
            for name in set[str]().union(*self._read)
        }
        self._readers: dict[str, set[int]] = {name: set() for name in self._freed}
        self._consumers = [list[int]() for _ in nodes]
        self._waiting = []
        for i, node in enumerate(nodes):
            sources = {producer[name] for name in node.input if name in producer}
            self._waiting.append(len(sources))
            for source in sources:
                self._consumers[source].append(i)
            for name in self._read[i]:
                self._readers[name].add(i)
        self.costs: dict[int, int] = {}
        # Heaps of all that was ever ready: what has run, or costs something else now, is skipped.
        self._by_cost: list[tuple[int, int]] = []
        self._by_index: list[int] = []
        for i, count in enumerate(self._waiting):
            if count == 0:
                self._add(i)

    def cheapest(self) -> tuple[int, int]:
        """Cost and index of the node that leaves the least memory."""
        while self.costs.get(self._by_cost[0][1]) != self._by_cost[0][0]:
            heappop(self._by_cost)
        return self._by_cost[0]

    def first(self) -> int:
        """Index of the first node."""
        while self._by_index[0] not in self.costs:
            heappop(self._by_index)
        return self._by_index[0]

    def run(self, chosen: int) -> None:
        """Take a node out, and update what depends on it."""
        del self.costs[chosen]
        for name in self._read[chosen]:
            left = self._readers[name]
            left.discard(chosen)
            if len(left) == 1:  # the last reader now frees it
                for i in left & self.costs.keys():
                    self._price(i)
        for i in self._consumers[chosen]:
            self._waiting[i] -= 1
            if self._waiting[i] == 0:
                self._add(i)

    def _add(self, i: int) -> None:
        heappush(self._by_index, i)
        self._price(i)

    def _price(self, i: int) -> None:
        freed = (self._freed[name] for name in self._read[i] if len(self._readers[name]) == 1)
        self.costs[i] = self._made[i] - sum(freed)
        heappush(self._by_cost, (self.costs[i], i))
