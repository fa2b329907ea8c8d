"""Gradients and predictions from a kit's graphs."""
