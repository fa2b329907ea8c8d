"""Names of the files of a kit and of a run."""

MANIFEST = "manifest.json"
FEATURES = "features.onnx"
STEP = "step.onnx"
BLOCKED_STEP = "step.blocked.onnx"
"""The step with depthwise convolutions in ONNX Runtime's blocked layout; not in every kit."""
PREDICT = "predict.onnx"
PARAMETERS = "parameters.safetensors"
GRAPHS = (FEATURES, STEP, BLOCKED_STEP, PREDICT)
KIT_FILES = (*GRAPHS, PARAMETERS)
"""Every file that a kit may hold in addition to its manifest."""

METRICS = "metrics.jsonl"
EVENTS = "events.out.tfevents."
"""Beginning of the names of TensorBoard's files."""
LAST = "last.safetensors"
BEST = "best.safetensors"
KNOWN = "known.safetensors"
"""What photos of the run's classes look like, for `predict` with `unknown`."""
RESULT = "result.json"
"""The record of a finished run."""
EMBEDDINGS = "embeddings.f32"
"""Embeddings of the photos, while the classifier is computed from them."""
CACHE = "features.cache"
"""Features of the photos, while a run trains."""
NETWORK = "network.safetensors"
"""All values of the network, for training with PyTorch."""

RUN_FILES = frozenset(
    (*KIT_FILES, MANIFEST, METRICS, LAST, BEST, KNOWN, RESULT, EMBEDDINGS, CACHE, NETWORK)
)
"""Every file in the folder of a run."""
