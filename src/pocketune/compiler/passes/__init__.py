"""Passes over a graph, one a file: what each requires, and what is true afterwards.

Those before lowering work on a `Program` of ATen operators, those after it on an ONNX model.
"""
