"""Passes over a graph; each states what it requires and what is true afterwards.

Those before lowering work on a `Program` of ATen operators, those after it on an ONNX model.
"""
