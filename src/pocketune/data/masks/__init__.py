"""Masks of photos: files of numbers or colors, or outlines that are drawn when they are read."""
