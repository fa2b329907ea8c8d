"""Compute one graph in tract, which ends the process where it panics.

python tract_graph.py GRAPH.onnx FEEDS.safetensors FOUND.safetensors
"""

import sys

import safetensors.numpy
import tract

TYPES = {"float32": "f32", "int64": "i64", "uint8": "u8"}


def main() -> None:
    graph, given, found = sys.argv[1:]
    loaded, feeds = tract.onnx().load(graph), safetensors.numpy.load_file(given)
    inputs = [feeds[loaded.input_name(i)] for i in range(loaded.input_count())]
    for i, array in enumerate(inputs):
        loaded.set_input_fact(i, ",".join([*map(str, array.shape), TYPES[array.dtype.name]]))
    outputs = loaded.into_model().into_runnable().run(inputs)
    arrays = {str(i): output.to_numpy().copy() for i, output in enumerate(outputs)}
    safetensors.numpy.save_file(arrays, found)


if __name__ == "__main__":
    main()
