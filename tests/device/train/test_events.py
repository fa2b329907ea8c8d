"""Event files for TensorBoard, read back by another implementation of their format."""

import math
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.device.train.events import EventFile, _checksum, _varint
from pocketune.device.train.progress import Silent
from pocketune.device.train.run import resume, train
from pocketune.errors import PocketuneError

from ..failing import failing
from ..runs import lines
from ..softmax_engine import SoftmaxEngine

event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
from tensorboardX.crc32c import _crc32c  # noqa: E402


def masked(data: bytes) -> int:
    crc = _crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read(path: Path) -> list:
    """The events of a file, each record with its checksums checked."""
    data, events = path.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        assert struct.unpack("<I", data[8:12]) == (masked(data[:8]),)
        body = data[12 : 12 + length]
        assert struct.unpack("<I", data[12 + length : 16 + length]) == (masked(body),)
        events.append(event_pb2.Event.FromString(body))
        data = data[16 + length :]
    return events


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("events.out.tfevents.*"))


def curve(path: Path, tag: str) -> dict[int, float]:
    return {
        event.step: value.simple_value
        for event in read(path)
        for value in event.summary.value
        if value.tag == tag
    }


@given(st.binary(max_size=200))
def test_checksums_are_those_of_the_other_implementation(data):
    assert _checksum(data) == struct.pack("<I", masked(data))


@given(st.integers(0, 2**63 - 1))
def test_whole_numbers_are_those_of_protobuf(number):
    assert event_pb2.Event.FromString(b"\x10" + _varint(number)).step == number


def test_a_file_begins_with_its_version_and_its_first_step(tmp_path):
    events = EventFile(tmp_path, 7)
    events.close()
    version, start = read(events.path)
    assert version.file_version == "brain.Event:2"
    assert (start.session_log.status, start.step) == (event_pb2.SessionLog.START, 7)
    assert events.path.name == "events.out.tfevents.00000.pocketune"  # no name of the machine


def test_only_finite_numbers_are_written(tmp_path):
    events = EventFile(tmp_path)
    events.write("step", step=3, epoch=1, loss=0.5, accuracy=math.nan, lr=0.1, reason="x")
    events.write("epoch", step=4, loss=0.4, validation_loss=0.3, best=True)
    events.write("epoch", step=5, loss=0.4, validation_loss=math.nan, best=True)
    events.write("end", step=5, best_loss=0.3)
    events.close()
    found = [(e.step, v.tag, v.simple_value) for e in read(events.path) for v in e.summary.value]
    assert found == [
        (3, "loss/training", pytest.approx(0.5)),
        (3, "step/lr", pytest.approx(0.1)),
        (4, "loss/validation", pytest.approx(0.3)),
    ]


def options(**changes):
    both = {"engine": SoftmaxEngine, "progress": Silent(), "epochs": 2, "lr": 0.05}
    return {**both, "logger": "tensorboard", **changes}


def test_a_run_writes_what_its_log_has(kit, photos, tmp_path):
    train(kit, photos, tmp_path / "run", **options())
    (path,) = files(tmp_path / "run")
    for tag, kind, name in (
        ("loss/training", "step", "loss"),
        ("step/lr", "step", "lr"),
        ("step/memory", "step", "memory"),
        ("accuracy/validation", "epoch", "validation_accuracy"),
    ):
        logged = {line["step"]: np.float32(line[name]) for line in lines(tmp_path / "run", kind)}
        assert curve(path, tag) == logged


def test_a_run_writes_none_unless_it_is_asked_to(kit, photos, tmp_path):
    train(kit, photos, tmp_path / "run", **options(logger="none"))
    assert not files(tmp_path / "run")


TRIALS = 8
"""Steps without an update, which tell how steep the classifier may be."""


def test_a_resumed_run_appends_a_file_that_replaces_later_steps(kit, photos, tmp_path):
    def crash(_):
        raise RuntimeError("power cut")

    engine = failing("gradients", at=TRIALS + 4, action=crash)
    with pytest.raises(RuntimeError, match="power cut"):
        train(kit, photos, tmp_path / "run", **options(engine=engine, checkpoint_every=2))
    resume(tmp_path / "run", engine=SoftmaxEngine, progress=Silent())
    first, second = files(tmp_path / "run")
    start = read(second)[1].step
    kept = {step: loss for step, loss in curve(first, "loss/training").items() if step < start}
    logged = {line["step"]: np.float32(line["loss"]) for line in lines(tmp_path / "run", "step")}
    assert kept | curve(second, "loss/training") == logged
    assert list(kept) == [1, 2] and list(curve(first, "loss/training")) == [1, 2, 3]
    assert start == min(curve(second, "loss/training")) == 3


def test_a_folder_with_nothing_but_logs_is_used_again(kit, photos, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    EventFile(folder).close()
    (folder / "metrics.jsonl").touch()
    train(kit, photos, folder, **options())
    assert len(files(folder)) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="no read-only folders there")
def test_a_file_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(PocketuneError, match="cannot be written"):
        EventFile(tmp_path / "missing")
