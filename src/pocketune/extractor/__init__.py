"""Feature extractor adaptation: the sub-network of a supernet that fits photos and a device.

PyTorch is imported when a search starts, so that the command line can read the options without it.
"""

from typing import TYPE_CHECKING

from pocketune.lazy import lazy_names

if TYPE_CHECKING:
    from pocketune.extractor.adapting import adapt_extractor as adapt_extractor
    from pocketune.extractor.record import Record as Record
    from pocketune.extractor.settings import ExtractorSettings as ExtractorSettings

_HOMES = {
    "adapting": ["adapt_extractor"],
    "record": ["Record"],
    "settings": ["ExtractorSettings"],
}

if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
