"""The memory that the runtime's arena takes for a graph, with the gaps between live tensors.

ONNX Runtime's arena is a best-fit allocator with coalescing, after TensorFlow's
(`onnxruntime/core/framework/bfc_arena.cc`). No tensor can use two gaps, so the arena is larger
than the live tensors: twice as large for the lite residual modules of a narrow network.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import defaultdict

import onnx

from pocketune.compiler.passes.liveness import Liveness, Nodes

_ALIGNMENT = 256
_DEAD = 1 << 16
"""`max_dead_bytes_per_chunk`, as the engine sets it."""
_POINTER = 8
_SCRATCH = {"Where": 2}
"""Tensors of the size of its result that an operator takes while it runs: `Where` selects from each
of its operands (`onnxruntime/core/providers/cpu/tensor/where_op.cc`)."""
_REST = 1 << 48
"""Bytes behind all tensors: as the engine sets the arena, they are the last gap that it uses."""


def arena_bytes(liveness: Liveness, nodes: Nodes, most: float = math.inf) -> int:
    """Bytes of the arena that were used, after a run of nodes in this order.

    The run ends where more than `most` bytes were used; the result is then above `most`.
    """
    alias, sizes, last = liveness.alias, liveness.bytes, dict[str, int]()
    for i, node in enumerate(nodes):
        for name in (*node.input, *node.output):
            last[alias.get(name, name)] = i
    freed = defaultdict(list)
    for name, i in last.items():
        if name not in liveness.outputs:
            freed[i].append(name)
    arena, held = Arena(), dict[str, tuple[int, int]]()
    for i, node in enumerate(nodes):
        scratch = _SCRATCH.get(node.op_type, 0)
        taken = [arena.allocate(size) for size in [sizes.get(node.output[0], 0)] * scratch if size]
        for name in node.output:
            if name not in alias and sizes.get(name, 0):
                held[name] = arena.allocate(sizes[name])
        if arena.used > most:
            return arena.used
        for chunk in taken:
            arena.free(*chunk)
        for name in freed[i]:
            if name in held:
                arena.free(*held.pop(name))
    return arena.used


def integer_scratch(model: onnx.ModelProto, liveness: Liveness) -> int:
    """Bytes that an integer convolution takes while it runs, beside its tensors; the most of any.

    The runtime unfolds the pixels under the kernel of one image, and keeps a pointer for each
    position of the kernel (`onnxruntime/core/providers/cpu/quantization/qlinearconv.cc`).
    """
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    sources = {node.output[0]: node.input[0] for node in model.graph.node if node.input}
    most = 0
    for node in model.graph.node:
        kernel = shapes.get(sources.get(node.input[1], ""), ()) if node.op_type == "Conv" else ()
        if len(kernel) == 4 and math.prod(kernel[2:]) > 1:
            pixels = liveness.bytes.get(node.output[0], 0) // kernel[0]
            most = max(most, math.prod(kernel[2:]) * (_POINTER + kernel[1]) * pixels)
    return most


class Arena:
    """Places of tensors in memory. Pages that were used once stay resident."""

    def __init__(self) -> None:
        self._gaps: list[tuple[int, int]] = []  # size and address, the smallest first
        self._sizes: dict[int, int] = {}  # of the gaps, by address
        self._begins: dict[int, int] = {}  # of the gaps, by the address of their end
        self.used = 0
        """Bytes that were used so far, up to the highest tensor."""
        self._add(0, _REST)

    def allocate(self, size: int) -> tuple[int, int]:
        """The address and the size of a chunk in the smallest gap for so many bytes."""
        size = -(-size // _ALIGNMENT) * _ALIGNMENT
        gap, address = self._gaps[bisect_left(self._gaps, (size, 0))]
        self._remove(address)
        if gap >= 2 * size or gap - size >= _DEAD:
            self._add(address + size, gap - size)
            gap = size
        self.used = max(self.used, address + gap)
        return address, gap

    def free(self, address: int, size: int) -> None:
        """Free a chunk, which becomes one gap with those beside it."""
        before, after = self._begins.get(address), address + size
        if after in self._sizes:
            size += self._remove(after)
        if before is not None:
            size += self._remove(before)
            address = before
        self._add(address, size)

    def _add(self, address: int, size: int) -> None:
        insort(self._gaps, (size, address))
        self._sizes[address] = size
        self._begins[address + size] = address

    def _remove(self, address: int) -> int:
        size = self._sizes.pop(address)
        del self._begins[address + size], self._gaps[bisect_left(self._gaps, (size, address))]
        return size
