"""Deltas: exact, small, and refused where they do not belong."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pocketune.device import Delta, Model, predict
from pocketune.errors import PocketuneError
from pocketune.kit.kit import Kit
from pocketune.kit.manifest import KitError
from pocketune.kit.tensors import read_tensors, write_tensors
from pocketune.tasks import Score

from ..runs import State, trained_state, write_best, write_last, write_photos, write_run
from ..tiny_kit import CLASSES, TinyKit


def bits(state: State) -> dict[str, tuple[tuple[int, ...], bytes]]:
    return {name: (value.shape, value.tobytes()) for name, value in state.items()}


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return TinyKit().write(tmp_path / "kit")


@pytest.fixture(scope="module")
def delta_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deltas")
    Delta.of(write_run(folder / "run")).save(folder / "delta.safetensors")
    return folder / "delta.safetensors"


def test_a_delta_tells_what_was_learned(run: Path, tmp_path: Path) -> None:
    Delta.of(run).save(tmp_path / "new" / "d.safetensors")
    delta = Delta.load(tmp_path / "new" / "d.safetensors")
    kit = Kit.open(run)
    assert delta.classes == CLASSES
    assert delta.header.kit == kit.identity
    assert delta.header.method == {"name": "last"}
    assert delta.header.step == 5
    assert delta.header.score == Score("accuracy", 0.5, 1.0)


def test_a_file_of_the_run_is_not_replaced(run: Path) -> None:
    before = (run / "best.safetensors").read_bytes()
    with pytest.raises(PocketuneError, match="is the run or kit itself, or a file in it: choose"):
        Delta.of(run).save(run / "best.safetensors")
    assert (run / "best.safetensors").read_bytes() == before


def test_only_a_delta_is_replaced(run: Path, tmp_path: Path) -> None:
    weights, delta = tmp_path / "weights.safetensors", tmp_path / "delta.safetensors"
    weights.write_bytes((run / "best.safetensors").read_bytes())
    with pytest.raises(PocketuneError, match=r"weights.safetensors exists and is not a delta: ch"):
        Delta.of(run).save(weights)
    assert weights.read_bytes() == (run / "best.safetensors").read_bytes()
    for _ in range(2):
        Delta.of(run).save(delta)
    Delta.load(delta)


def test_kit_and_delta_are_the_run_bit_for_bit(run: Path, kit: Kit, tmp_path: Path) -> None:
    Delta.of(run).save(tmp_path / "d.safetensors")
    model = Delta.load(tmp_path / "d.safetensors").model(kit)
    trained = Model.open(run)
    assert bits(model.state) == bits(trained.state)
    assert (model.classes, model.step, model.score) == (CLASSES, 5, trained.score)


_any_float = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(max_examples=40)
@given(
    scale=hnp.arrays(np.float32, (), elements=_any_float),
    mean=hnp.arrays(np.float32, (6,), elements=_any_float),
)
def test_any_values_come_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, scale: np.ndarray, mean: np.ndarray
) -> None:
    folder = tmp_path_factory.mktemp("any")
    kit = TinyKit().write(folder / "run")
    state = {**TinyKit().state(), "scale": scale, "norm.running_mean": mean}
    Delta.of(Model(kit, CLASSES, state)).save(folder / "d.safetensors")
    assert bits(Delta.load(folder / "d.safetensors").model(kit).state) == bits(state)


def test_only_tensors_that_differ_are_stored_and_always_the_output_layer(kit: Kit) -> None:
    state = kit.state()
    assert Delta.of(Model(kit, CLASSES, state)).state.keys() == {"fc.weight", "fc.bias"}
    state["norm.running_mean"][3] = np.nextafter(state["norm.running_mean"][3], np.float32(9))
    changed = {"fc.weight", "fc.bias", "norm.running_mean"}
    assert Delta.of(Model(kit, CLASSES, state)).state.keys() == changed


def test_the_sign_of_zero_is_a_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zero = {**TinyKit().state(), "scale": np.array(0.0, np.float32)}
    monkeypatch.setattr(TinyKit, "state", lambda _: zero)
    kit = TinyKit().write(tmp_path / "kit")
    state = {**zero, "scale": np.array(-0.0, np.float32)}
    assert "scale" in Delta.of(Model(kit, CLASSES, state)).state


def test_a_delta_fits_the_same_kit_with_other_classes_batch_and_step(tmp_path: Path) -> None:
    tiny = TinyKit(statistic=False)
    run = write_run(tmp_path / "run", tiny)
    other = TinyKit(classes=("a", "b"), batch=2, masks=False, statistic=False)
    model = Delta.of(run).model(other.write(tmp_path / "other.zip"))
    assert model.classes == CLASSES
    assert bits(model.state) == bits(trained_state(tiny))


def test_a_run_on_other_classes_than_its_kit_s(kit: Kit, tmp_path: Path) -> None:
    two = TinyKit(classes=("a", "b"))
    TinyKit().write(tmp_path / "run")
    write_best(tmp_path / "run", kit, trained_state(two), two.classes)
    delta = Delta.of(tmp_path / "run")
    assert delta.header.network["classes"] == 2
    assert delta.model(kit).classes == ("a", "b")
    assert bits(delta.model(kit).state) == bits(trained_state(two))


def other_values(tiny: TinyKit) -> State:
    return {**trained_state(tiny, 3), "fc.weight": np.ones((3, 6), np.float32)}


@pytest.mark.parametrize("difference", ["frozen part", "size", "values"])
def test_a_delta_of_another_kit_is_refused(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, difference: str
) -> None:
    if difference == "values":
        monkeypatch.setattr(TinyKit, "state", other_values)
    tiny = {
        "frozen part": TinyKit(frozen_part=False),
        "size": TinyKit(size=16),
        "values": TinyKit(),
    }[difference]
    other = tiny.write(tmp_path / "other")
    with pytest.raises(KitError, match=r"run is a delta of the kit \w{12}, and .*other is another"):
        Delta.of(run).model(other)


def test_a_run_that_was_not_validated_gives_a_delta_without_a_score(
    kit: Kit, tmp_path: Path
) -> None:
    TinyKit().write(tmp_path / "run")
    write_last(tmp_path / "run", kit, trained_state(TinyKit()), CLASSES, tmp_path)
    assert Delta.of(tmp_path / "run").header.score is None


def test_a_kit_of_a_delta_predicts_as_the_run_and_has_its_classes(kit: Kit, tmp_path: Path) -> None:
    two = TinyKit(classes=("a", "b"))
    TinyKit().write(tmp_path / "run")
    write_best(tmp_path / "run", kit, trained_state(two), two.classes)
    made = Delta.of(tmp_path / "run").apply(kit, tmp_path / "made.zip")
    assert made.manifest.classes == ("a", "b")
    assert bits(made.state()) == bits(trained_state(two))
    photos = write_photos(tmp_path / "photos", ("a", "b"), each=3)
    assert list(predict(made.path, photos)) == list(predict(tmp_path / "run", photos))


def test_a_kit_of_a_delta_does_not_replace_a_run(run: Path, kit: Kit) -> None:
    with pytest.raises(KitError, match="is not a kit: choose another name"):
        Delta.of(run).apply(kit, run)


@settings(max_examples=60)
@given(length=st.floats(0, 1, exclude_max=True))
def test_a_truncated_delta_is_refused(delta_file: Path, length: float) -> None:
    content = delta_file.read_bytes()
    damaged = delta_file.with_name("truncated")
    damaged.write_bytes(content[: int(length * len(content))])
    with pytest.raises(PocketuneError, match="truncated"):
        Delta.load(damaged)


@settings(max_examples=300)
@given(data=st.data())
def test_a_changed_byte_never_gives_other_values(delta_file: Path, data: st.DataObject) -> None:
    content = bytearray(delta_file.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    damaged = delta_file.with_name("changed")
    damaged.write_bytes(content)
    good = Delta.load(delta_file)
    try:
        found = Delta.load(damaged)
    except PocketuneError:
        return
    assert found.header == good.header
    assert bits(found.state) == bits(good.state)


@given(content=st.binary(max_size=200))
def test_any_other_file_is_refused(delta_file: Path, content: bytes) -> None:
    other = delta_file.with_name("other")
    other.write_bytes(content)
    with pytest.raises(PocketuneError, match="other"):
        Delta.load(other)


@pytest.mark.parametrize("name", ["best.safetensors", "parameters.safetensors"])
def test_other_tensor_files_are_not_deltas(run: Path, name: str) -> None:
    with pytest.raises(
        PocketuneError, match=f"{name} is a safetensors file, but not a Pocketune d"
    ):
        Delta.load(run / name)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("kit", None, "'kit' must be a non-empty string"),
        ("task", {"name": "divination"}, "'task.name' must be one of"),
        ("score", {"name": "luck", "value": 1.0, "loss": 0.0, "style": "x"}, "'luck' is not a met"),
        ("step", -1, "'step' must be a whole number"),
        ("more", 1, "has the unknown field 'more'"),
    ],
)
def test_a_header_of_another_kind_names_the_field(
    delta_file: Path, field: str, value: object, message: str
) -> None:
    state, header = read_tensors(delta_file, kind="delta")
    header = {name: header[name] for name in header.keys() - {"kind", "schema"}}
    other = delta_file.with_name("edited")
    write_tensors(other, state, kind="delta", metadata={**header, field: value})
    with pytest.raises(PocketuneError, match=f"edited: .*{message}|edited {message}"):
        Delta.load(other)


def test_the_header_is_json_that_any_reader_of_safetensors_shows(delta_file: Path) -> None:
    content = delta_file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["pocketune"])
    assert header["task"]["classes"] == list(CLASSES)
    assert header["kind"] == "delta" and header["schema"] == 2


def test_edited_values_are_seen(delta_file: Path) -> None:
    delta = Delta.load(delta_file)
    changed = replace(delta, state={**delta.state, "scale": np.array(9, np.float32)})
    changed.save(delta_file.with_name("edited"))
    with pytest.raises(PocketuneError, match="edited is damaged; save the delta again"):
        Delta.load(delta_file.with_name("edited"))
