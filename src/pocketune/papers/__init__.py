"""The papers' own ways to count, and their tables."""

# Importing a paper registers its tables; they are listed in this order.
from pocketune.papers import tinytl as tinytl  # isort: skip
from pocketune.papers import tinytl_search as tinytl_search  # isort: skip
from pocketune.papers import mobiletl_tables as mobiletl_tables  # isort: skip
from pocketune.papers import repnet as repnet  # isort: skip
from pocketune.papers import gradfilter_tables as gradfilter_tables  # isort: skip
from pocketune.papers.counts import by_block
from pocketune.papers.published import published_flops, published_memory
from pocketune.papers.rules import counts_as
from pocketune.papers.trace import ModuleCall, ModuleTrace, trace_modules

__all__ = [
    "ModuleCall",
    "ModuleTrace",
    "by_block",
    "counts_as",
    "published_flops",
    "published_memory",
    "trace_modules",
]
