"""Sizes, the memory estimate, and runs that would not fit."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import onnx
import pytest

from pocketune.data.loader import AHEAD
from pocketune.device.memory import process
from pocketune.device.memory.budget import BudgetExceeded, check_budget
from pocketune.device.memory.estimate import OPENING, RUNTIME, MemoryEstimate, estimate_memory
from pocketune.device.memory.graphs import (
    ARENA_OVERHEAD,
    FEATURES_HELD,
    NODE_BYTES,
    OPENING_COPIES,
    OPENING_LARGEST,
    WEIGHTS_OVERHEAD,
)
from pocketune.device.memory.photos import decoded_bytes, waiting_bytes
from pocketune.device.memory.process import ProcessMemory
from pocketune.device.memory.sizes import format_size, parse_pixels, parse_size
from pocketune.device.train.optimizer import state_slots
from pocketune.errors import PocketuneError
from pocketune.kit.kit import Kit

from ..runs import make_settings
from ..softmax_engine import FEATURES, SIZE, write_softmax_kit
from ..tiny_kit import TinyKit

BEFORE = ProcessMemory(current=50_000_000, peak=52_000_000)
PHOTOS = 20


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Kit:
    return write_softmax_kit(tmp_path_factory.mktemp("budget") / "kit", batch=8)


def refusal(kit: Kit, budget: int, optimizer: str = "adam") -> str:
    with pytest.raises(BudgetExceeded) as error:
        check(kit, budget, optimizer)
    return str(error.value)


def check(kit: Kit, budget: int | None, optimizer: str = "adam") -> MemoryEstimate:
    settings = make_settings(budget=budget, optimizer=optimizer)
    return check_budget(kit, settings, classes=3, images=PHOTOS, before=BEFORE)


def predicted(kit: Kit, slots: float, process: int = BEFORE.current) -> int:
    """What `check` compares with the budget."""
    return estimate_memory(
        kit.manifest, process=process, classes=3, slots=slots, photos=PHOTOS
    ).total


def test_a_size_beyond_all_numbers() -> None:
    with pytest.raises(PocketuneError, match="is too large: write for example 96MB"):
        parse_size("9" * 320)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("96MB", 96_000_000),
        ("96 mb", 96_000_000),
        (" 128MiB ", 2**27),
        ("1GB", 10**9),
        ("0.5GiB", 2**29),
        ("1.5kb", 1500),
        ("100B", 100),
        ("1234567", 1234567),
        (123456, 123456),
    ],
)
def test_parse_size(text: str | int, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize(
    "text", ["", "MB", "96 apples", "-5MB", "1e3MB", "96MB MB", "nan", "1.MB", "0.5"]
)
def test_no_size(text: str) -> None:
    with pytest.raises(PocketuneError, match=r"is not a size|must be above 0"):
        parse_size(text)


@pytest.mark.parametrize("text", ["96", "999999", " 4096 "])
def test_a_number_of_bytes_that_is_meant_as_megabytes(text: str) -> None:
    with pytest.raises(PocketuneError, match=f"a size of {text.strip()} has no unit: write"):
        parse_size(text)


@pytest.mark.parametrize("text", ["0", "0MB", 0])
def test_a_budget_is_above_0(text: str | int) -> None:
    with pytest.raises(PocketuneError, match="a size of 0"):
        parse_size(text)


def test_format_size() -> None:
    assert [
        format_size(n) for n in (0, 5, 49_999, 950_000, 9_960_000, 10_400_000, 1_234_000_000)
    ] == [
        "0.0 MB",
        "5 bytes",
        "50 kB",
        "0.9 MB",
        "10.0 MB",
        "10 MB",
        "1234 MB",
    ]


def test_estimate_adds_up(kit: Kit) -> None:
    estimate = estimate_memory(kit.manifest, process=1000, classes=5, slots=2)
    trained = 4 * (5 * FEATURES + 5)
    kept = FEATURES_HELD * 8 * 4 * math.prod(kit.manifest.features or (0,))
    assert estimate == MemoryEstimate(
        process=1000,
        runtime=RUNTIME,
        graphs=0,  # of no nodes and no weights
        activations=round(ARENA_OVERHEAD * 8_000_000) + kept,
        parameters=trained + 4 * FEATURES,
        optimizer=2 * trained,
        photos=waiting_bytes(SIZE, (AHEAD + 2) * 8, label=8) + decoded_bytes(SIZE, None),
    )
    assert estimate.total == sum(vars(estimate).values())


def test_graphs_are_counted_by_nodes_and_weights(tmp_path: Path) -> None:
    kit = TinyKit(statistic=False, masks=False).write(tmp_path / "kit")
    held = {}
    for name in ("features.onnx", "step.onnx", "predict.onnx"):
        graph = onnx.load(tmp_path / "kit" / name).graph
        weights = [tensor.ByteSize() for tensor in graph.initializer]
        held[name] = round(WEIGHTS_OVERHEAD * sum(weights)) + len(graph.node) * NODE_BYTES
    step_or_predict = max(held["step.onnx"], held["predict.onnx"])
    hides_opening = 10**6
    found = estimate_memory(kit.manifest, process=0, classes=3, slots=hides_opening, refits=False)
    assert found.graphs == held["features.onnx"] + step_or_predict


def test_opening_a_large_frozen_part_is_the_peak(tmp_path: Path) -> None:
    """The part is 50 MB in two tensors; nothing else has a size to speak of."""
    kit = TinyKit(statistic=False, masks=False).write(tmp_path / "kit")
    part = replace(kit.manifest.graphs["features"], weights=50_000_000, largest=40_000_000)
    kit.manifest.graphs["features"] = part
    opening = OPENING_COPIES * 50_000_000 + OPENING_LARGEST * 40_000_000
    total = estimate_memory(kit.manifest, process=0, classes=3, slots=0).total
    assert total == pytest.approx(OPENING + opening, rel=0.01)


def test_estimate_of_a_zip_is_the_same(tmp_path: Path) -> None:
    folder, archive = (write_softmax_kit(tmp_path / name) for name in ("kit", "kit.zip"))
    assert estimate_memory(folder.manifest, process=0, classes=3, slots=1) == estimate_memory(
        archive.manifest, process=0, classes=3, slots=1
    )


def test_estimate_scales_with_the_batch(kit: Kit) -> None:
    half = estimate_memory(kit.manifest, process=0, classes=3, slots=0, batch=4)
    assert half.activations == round(ARENA_OVERHEAD * 4_000_000)
    assert half.photos < estimate_memory(kit.manifest, process=0, classes=3, slots=0).photos


def test_without_a_budget_all_is_well(kit: Kit) -> None:
    check(kit, None)


def test_enough(kit: Kit) -> None:
    total = predicted(kit, 2)
    check(kit, total)
    refusal(kit, total - 1)


def test_the_classifier_is_of_fewer_photos_where_all_do_not_fit(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "pocketune.device.memory.budget.estimate_memory",
        lambda *positional, images, **named: replace(
            estimate_memory(*positional, **named), head=0 if images is None else 5000
        ),
    )
    total = predicted(kit, 2)
    assert [check(kit, total + room).head for room in (0, 1000, 5000, 9000)] == [
        0,
        1000,
        5000,
        5000,
    ]
    assert check(kit, None).head == 5000


@pytest.mark.parametrize(
    ("modules", "words"),
    [
        (
            {},
            "(Python, numpy and the runtime); give a larger budget: training needs about 72 MB",
        ),
        (
            {"torch": None},
            "(Python, PyTorch and the runtime); use another process, which does not import PyTorch",
        ),
    ],
)
def test_smaller_than_the_runtime_itself(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, modules: dict[str, None], words: str
) -> None:
    monkeypatch.setattr("pocketune.device.memory.budget.sys", SimpleNamespace(modules=modules))
    assert refusal(kit, 20_000_000) == (
        "the budget of 20 MB is smaller than the 52 MB that this process took before it began "
        f"{words}"
    )


def test_a_program_that_holds_more_than_the_budget(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pocketune.device.memory.budget.sys", SimpleNamespace(modules={}))

    def told(current: int, peak: int) -> str:
        before, settings = ProcessMemory(current, peak), make_settings(budget=90_000_000)
        with pytest.raises(BudgetExceeded) as caught:
            check_budget(kit, settings, classes=3, images=PHOTOS, before=before)
        return str(caught.value).partition(" that this process took before it began ")[2]

    remedy = "; use a process of its own, or give a larger budget"
    program = "(Python, the runtime and the rest of the program)"
    assert told(350_000_000, 370_000_000) == program + remedy
    runtime = "(Python, numpy and the runtime); give a larger budget: training needs about 110 MB"
    assert told(88_000_000, 92_000_000) == runtime
    assert told(60_000_000, 370_000_000) == "(at its peak; 60 MB now)" + remedy


def test_refusal_names_shortfall_parts_and_what_would_fit(kit: Kit) -> None:
    total = predicted(kit, 2)
    message = refusal(kit, total - 5_600_000)
    assert message.startswith(f"the budget of {format_size(total - 5_600_000)} is 5.6 MB short: ")
    assert f"training needs about {format_size(total)} (process 50 MB, runtime " in message
    assert "activations 8.8 MB, parameters " in message
    assert message.endswith("; it would fit with a kit of batch 2")


def test_remedy_of_another_optimizer(kit: Kit) -> None:
    coded, none = (predicted(kit, slots) for slots in (state_slots("adam8", 0), 0))
    assert refusal(kit, coded).endswith("a kit of batch 7 or with the optimizer adam8")
    assert refusal(kit, none).endswith("batch 7 or with the optimizer sgd and momentum 0")
    assert refusal(kit, none, "sgd").endswith("with the optimizer sgd and momentum 0")


def test_remedy_of_both(tmp_path: Path) -> None:
    kit = write_softmax_kit(tmp_path / "kit", classes=tuple(map(str, range(9000))), batch=8)
    settings = make_settings(budget=RUNTIME + 56_000_000, optimizer="adam")
    with pytest.raises(
        BudgetExceeded, match=r"a kit of batch \d, the optimizer sgd and momentum 0$"
    ):
        check_budget(kit, settings, classes=9000, images=PHOTOS, before=BEFORE)


def test_remedy_of_a_bundled_kit() -> None:
    last, blocks = predicted(Kit.open("last"), 2), Kit.open("blocks")
    step = replace(blocks.manifest.graphs["step"], memory=200_000_000)
    graphs = {**blocks.manifest.graphs, "step": step}
    message = refusal(replace(blocks, manifest=replace(blocks.manifest, graphs=graphs)), last)
    assert message.endswith("; it would fit with the bundled kit last")


def test_no_remedy(kit: Kit) -> None:
    settings = make_settings(budget=57_000_000)
    before = ProcessMemory(current=56_000_000, peak=56_000_000)
    with pytest.raises(BudgetExceeded, match=r"; use a kit of smaller images or batches"):
        check_budget(kit, settings, classes=3, images=PHOTOS, before=before)


@pytest.mark.parametrize(
    ("text", "expected"), [("12MP", 12_000_000), (" 1.5 mp", 1_500_000), ("4096", 4096), (7, 7)]
)
def test_parse_pixels(text: str | int, expected: int) -> None:
    assert parse_pixels(text) == expected


@pytest.mark.parametrize("text", ["", "12MB", "MP", "-3MP", "0", 0, "0.1", "nan", "9" * 320])
def test_no_number_of_pixels(text: str | int) -> None:
    with pytest.raises(PocketuneError, match="is not a number of pixels: write for example 12MP"):
        parse_pixels(text)


def test_a_limit_of_the_system_is_refused_like_a_budget(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = predicted(kit, 2)
    monkeypatch.setattr("pocketune.device.memory.budget.granted_bytes", lambda: needed)
    assert check(kit, None).total == check(kit, needed).total
    monkeypatch.setattr("pocketune.device.memory.budget.granted_bytes", lambda: needed - 100_000)
    with pytest.raises(BudgetExceeded) as caught:
        check(kit, None)
    message = str(caught.value)
    assert message.startswith("the limit of this process's control group is 0.1 MB short, and ")
    assert "raise the limit; it would fit with a kit of batch " in message
    assert "the budget of" in refusal(kit, needed - 1)


def test_less_memory_than_the_libraries_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "memory_limit", lambda: None)
    assert process.granted_bytes() is None
    process.check_group(10**12, "this command")
    monkeypatch.setattr(process, "memory_limit", lambda: 30_000_000)
    assert process.granted_bytes() >= 30_000_000
    process.check_group(30_000_000, "this command")
    with pytest.raises(PocketuneError, match="this command needs about 32 MB of memory, and the"):
        process.check_group(32_000_000, "this command")
