"""The memory over a training step, from the kit's own graphs."""

import pytest

from pocketune.device.memory.estimate import estimate_memory
from pocketune.device.memory.graphs import arena_size
from pocketune.kit.kit import Kit
from pocketune.reporting.memory import parts, step_memory


@pytest.fixture(scope="module", params=["blocks", "last"])
def kit(request) -> Kit:
    return Kit.open(request.param)


def estimate(kit):
    return estimate_memory(kit.manifest, process=30_000_000, classes=10, slots=2)


def test_parts_add_up_to_the_prediction(kit):
    found = parts(estimate(kit))
    assert sum(part.bytes for part in found) == estimate(kit).total
    assert len({part.name for part in found}) == 9


def test_the_peak_over_the_step_is_the_manifest_s(kit):
    found = step_memory(kit, estimate(kit), 10)
    graphs, at_once = kit.manifest.graphs, kit.manifest.images_at_once
    frozen = max(node.bytes for node in found.nodes[: found.frozen])
    trained = max(node.bytes for node in found.nodes[found.frozen :])
    assert frozen == round(arena_size(graphs["features"]) * at_once)
    assert graphs["step"].packs
    assert trained == round(arena_size(graphs["step"])) + graphs["step"].weights
    assert found.frozen == graphs["features"].nodes
    assert len(found.nodes) - found.frozen == graphs["step"].nodes
    assert max(found.totals) == estimate(kit).total


def test_operators_belong_to_the_blocks_of_their_parameters():
    kit = Kit.open("blocks")
    names = [part.name for part in step_memory(kit, estimate(kit), 10).blocks]
    assert names[0] == "frozen part"
    assert [name for name in names if name.startswith("blocks.")] == ["blocks.5.0"]
    assert "classifier" in names


def test_without_the_author_half_there_is_none(device_half_alone):
    kit = Kit.open("last")
    assert step_memory(kit, estimate(kit), 10) is None
