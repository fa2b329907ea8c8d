"""Compute the graphs of all cases with this Python's ONNX Runtime: native_graphs.py FOLDER."""

import sys
from pathlib import Path

import onnxruntime
import safetensors.numpy


def main() -> None:
    for graph in sorted(Path(sys.argv[1]).rglob("*.onnx")):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(graph, options)
        names = [output.name for output in session.get_outputs()]
        feeds = safetensors.numpy.load_file(graph.with_suffix(".feeds.safetensors"))
        found = dict(zip(names, session.run(names, feeds), strict=True))
        safetensors.numpy.save_file(found, graph.with_suffix(".found.safetensors"))


if __name__ == "__main__":
    main()
