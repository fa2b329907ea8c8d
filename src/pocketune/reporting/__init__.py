"""A run, a plan or a comparison as one HTML file that needs nothing else.

Jinja2 and matplotlib (the extra `report`) are imported when a report is made.
"""

from pocketune.reporting.subject import report

__all__ = ["report"]
