"""Labels are read as the page reads them: `web/tests/page/labels.test.ts` has the same cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pocketune.data.finding import find
from pocketune.errors import PocketuneError
from pocketune.tasks import Attributes, Classification

FILE = Path(__file__).parents[2] / "web" / "tests" / "fixtures" / "labels.json"
CASES = json.loads(FILE.read_text("utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_page_s_cases(case: dict[str, Any], tmp_path: Path) -> None:
    for name, text in case["files"].items():
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            Image.new("RGB", (8, 8)).save(path)
        else:
            path.write_bytes(text.encode())
    if "refused" in case:
        with pytest.raises(PocketuneError) as caught:
            find(tmp_path / "photos", (Attributes, Classification), "hold out")
        assert case["refused"] in str(caught.value)
        return
    found = find(tmp_path / "photos", (Attributes, Classification), "hold out")
    titles = case.get("attributes", [])
    assert list(found.titles) == titles
    labels = {
        each.name: [title for title, value in zip(titles, each.label, strict=True) if value == 1]
        if titles
        else [each.label]
        for each in found.examples
    }
    assert labels == case["labels"]
    assert {each.name: each.part for each in found.examples if each.part} == case.get("parts", {})
