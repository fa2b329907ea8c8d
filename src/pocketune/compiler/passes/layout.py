"""Which depthwise convolutions are computed in the runtime's blocked layout.

Blocks are two to twenty times as fast (see `pocketune.compiler.passes.blocked`), but a copy of the
input lives next to it, or one of the output. Small copies are always worth it, and large ones where
the step needs less memory than elsewhere: then its peak stays what it is.
"""

from collections.abc import Mapping

import onnx

from pocketune.compiler.passes.blocked import DEPTHWISE
from pocketune.compiler.passes.schedule import Liveness

SMALL = 5_000_000
"""Bytes of copies that are always made."""


def leave_large_plain(model: onnx.ModelProto, sizes: Mapping[str, int]) -> None:
    """Rename the convolutions whose copies would raise the peak, so that they get no blocks.

    Args:
        model: in the order in which it is executed.
        sizes: of open dimensions, by name.
    """
    nodes, liveness = list(model.graph.node), Liveness.of(model, sizes)
    timeline = liveness.timeline(nodes)
    peak = max(timeline, default=0)
    for node, live in zip(nodes, timeline, strict=True):
        if node.op_type != "Conv" or not node.name.startswith(DEPTHWISE):
            continue
        x, kernel = (liveness.bytes.get(name, 0) for name in node.input[:2])
        y = liveness.bytes[node.output[0]]
        # input and kernel are copied, the kernel twice at most, before there is an output
        copies = max(x + kernel, x + 2 * kernel - y, y)
        if copies > SMALL and live + copies > peak:
            node.name = f"plain_{node.name}"
