"""Write what kits may hold as JSON for the studio, so that both halves read one list.

    python tools/make_studio_rules.py

`web/src/formats/rules.json` is compared with this in `tests/studio/test_rules.py`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, get_args

from pocketune.device.train import record
from pocketune.device.train.settings import TrainSettings
from pocketune.kit import graphs, kit, manifest, names, outline, tensors
from pocketune.tasks import TASKS

PLACE = Path(__file__).parents[1] / "web" / "src" / "formats" / "rules.json"


def rules() -> dict[str, Any]:
    """The rules, by the names that the page's code uses."""
    return {
        "operators": sorted(graphs.OPERATORS),
        "blockedOperators": sorted(graphs.BLOCKED_OPERATORS),
        "blockedDomain": graphs.BLOCKED_DOMAIN,
        "fusedOperators": sorted(graphs.FUSED_OPERATORS),
        "fusedDomain": graphs.FUSED_DOMAIN,
        "opsets": [graphs.OPSETS[0], graphs.OPSETS[-1]],
        "irVersions": [graphs.IR_VERSIONS[0], graphs.IR_VERSIONS[-1]],
        "mostNodes": graphs.MOST_NODES,
        "types": graphs.TYPES,
        "itemBytes": {str(kind): size for kind, size in outline.ITEM_BYTES.items()},
        "kitSchema": manifest.SCHEMA,
        "kitFiles": list(names.KIT_FILES),
        "mostElements": manifest.MOST_ELEMENTS,
        "room": kit.ROOM,
        "each": kit.EACH,
        "groups": list(get_args(manifest.Group)),
        "workKinds": list(get_args(manifest.WorkKind)),
        "tasks": sorted(TASKS),
        "tensorSchema": tensors.SCHEMA,
        "recordSchema": record.SCHEMA,
        "trainSettings": TrainSettings().to_dict(),
    }


def text() -> str:
    """The file's content."""
    return json.dumps(rules(), indent=2) + "\n"


def main() -> None:
    """Write the file."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    PLACE.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
