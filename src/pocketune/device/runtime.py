"""The only place that imports ONNX Runtime."""

from __future__ import annotations

import os
from pathlib import Path

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read on import: nothing is ever sent

import onnxruntime as ort

ort.set_global_thread_pool_sizes(min(os.cpu_count() or 1, 8), 1)


def open_session(model: Path | bytes) -> ort.InferenceSession:
    """A session on a graph, computing on the processor with the threads all sessions share."""
    options = ort.SessionOptions()
    options.use_per_session_threads = False  # two pools of spinning threads disturb each other
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    source = str(model) if isinstance(model, Path) else model
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
