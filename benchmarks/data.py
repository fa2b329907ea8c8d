"""Photos and published weights, which the project does not contain."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

DEFAULT = Path(__file__).parents[2] / "shared" / "data"


def parse(parser: ArgumentParser) -> Namespace:
    """Arguments with ``--data``; the script ends, without error, where there is no such folder."""
    default = Path(os.environ.get("POCKETUNE_SHARED_DATA", DEFAULT))
    parser.add_argument("--data", type=Path, default=default, help="folder of images and weights")
    options = parser.parse_args()
    if not options.data.is_dir():
        print(f"skipped: no images and weights at {options.data}; name their folder with --data")
        raise SystemExit(0)
    return options
