"""The charts of a report, drawn by matplotlib as vectors in the colors of the page."""
