"""Gradient filtering as a method."""
