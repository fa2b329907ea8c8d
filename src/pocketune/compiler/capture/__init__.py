"""Capture a training step as one graph of ATen operators."""
