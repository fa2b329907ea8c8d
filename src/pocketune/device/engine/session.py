"""The only place that imports ONNX Runtime."""

import os
from pathlib import Path

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read on import: nothing is ever sent

import onnxruntime as ort

from pocketune.device.engine.blocked import block_depthwise
from pocketune.device.engine.onnx_protobuf import ProtobufError
from pocketune.device.engine.processor import available_cores, products_saturate

# Two pools of spinning threads disturb each other, and two arenas keep the peak of each graph:
# all sessions share one of both.
ort.set_global_thread_pool_sizes(min(available_cores(), 8), 1)
_TO_THE_NEXT_POWER_OF_TWO = 0
ort.create_and_register_allocator(
    ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT),
    ort.OrtArenaCfg(
        {
            "max_mem": 0,
            # A few large regions: free neighbors in one become room for a larger tensor, and what
            # has never been used of it takes no memory.
            "arena_extend_strategy": _TO_THE_NEXT_POWER_OF_TWO,
            "initial_chunk_size_bytes": 1 << 25,
            "max_dead_bytes_per_chunk": 1 << 16,  # split a free chunk rather than waste half of it
        }
    ),
)


def open_session(
    model: Path | bytes, *, as_written: bool, integers: bool = False
) -> ort.InferenceSession:
    """A session on a graph, computing on the processor.

    Args:
        model: The graph, as a file or as its bytes.
        as_written: Execute the nodes in the file's order and change nothing but the layout of
            depthwise convolutions (see `block_depthwise`): the compiler has put them in the order
            that needs least memory. Otherwise the runtime optimizes, which pays where
            convolutions have constant kernels.
        integers: Fuse operators between dequantized tensors into integer ones. Otherwise
            weights stored in 8 bits are brought to float32 once, when the graph is opened.
    """
    options = ort.SessionOptions()
    options.use_per_session_threads = False
    options.add_session_config_entry("session.use_env_allocators", "1")
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    if integers:
        precise = "1" if products_saturate() else "0"  # uint8 x uint8, slower and exact
        options.add_session_config_entry("session.x64quantprecision", precise)
    else:
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    if as_written:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
        options.enable_mem_reuse = False
        blocked = _open_blocked(model, options)
        if blocked is not None:
            return blocked
    return _open(str(model) if isinstance(model, Path) else model, options)


def _open_blocked(model: Path | bytes, options: ort.SessionOptions) -> ort.InferenceSession | None:
    """With blocked kernels, where it has what they compute and the processor has them."""
    try:
        blocked = block_depthwise(model)
    except ProtobufError:
        return None  # opened as it is, a graph that is damaged says so
    if blocked is None:
        return None
    try:
        return _open(blocked, options)
    except Exception:  # its own types, which have no base in common
        return None


def _open(model: str | bytes, options: ort.SessionOptions) -> ort.InferenceSession:
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    session._model_bytes = None  # it would keep the bytes, of which it has made its own graph
    return session
