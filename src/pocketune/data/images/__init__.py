"""Decode image files of any format in little memory, and cut out what a network sees."""
