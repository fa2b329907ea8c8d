"""Names of the files of a kit and of a run."""

MANIFEST = "manifest.json"
FEATURES = "features.onnx"
STEP = "step.onnx"
BLOCKED_STEP = "step.blocked.onnx"
"""The step with depthwise convolutions in ONNX Runtime's blocks; not every kit has one."""
PREDICT = "predict.onnx"
PARAMETERS = "parameters.safetensors"
KIT_FILES = (FEATURES, STEP, BLOCKED_STEP, PREDICT, PARAMETERS)
"""Every file that a kit may hold besides its manifest."""

METRICS = "metrics.jsonl"
LAST = "last.safetensors"
BEST = "best.safetensors"
NETWORK = "network.safetensors"
"""All values of the network, which a run on another engine than ONNX Runtime builds it from."""

RUN_FILES = frozenset((*KIT_FILES, MANIFEST, METRICS, LAST, BEST, NETWORK))
"""All that a run makes."""
