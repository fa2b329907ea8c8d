"""Networks without branches, in a kit."""

from pathlib import Path

import pytest

from pocketune.compiler import compile
from pocketune.methods import Method, MobileTL, RepNet, SignedBackward, TinyTL, TopBlocks, adapt

from ..networks import modern

METHODS = [MobileTL(1), TopBlocks(1) + SignedBackward(), TinyTL(), RepNet()]


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_each_method_compiles(method: Method, tmp_path: Path) -> None:
    network = modern.plain()
    kit = compile(adapt(network, method), tmp_path / "kit", batch=2, size=16)
    assert kit.manifest.task.head == ("4.weight", "4.bias")
