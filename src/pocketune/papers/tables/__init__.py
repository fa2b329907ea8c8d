"""The papers' tables, computed anew by their own conventions."""

# Importing a paper registers its tables.
from pocketune.papers.tables import tinytl as tinytl  # isort: skip
from pocketune.papers.tables import mobiletl as mobiletl  # isort: skip
from pocketune.papers.tables import repnet as repnet  # isort: skip
from pocketune.papers.tables import gradfilter as gradfilter  # isort: skip
from pocketune.papers.tables.table import About, Cell, Row, Table, list_tables, published_table

__all__ = [
    "About",
    "Cell",
    "Row",
    "Table",
    "list_tables",
    "published_table",
]
