"""`pocketune export` in this process."""

from pathlib import Path

import pytest


def test_export(run, trained):
    result = run("export", trained, "--out", "deep/flowers.onnx")
    assert result.exit_code == 0, result.output
    assert "images uint8 (N, 16, 16, 3) -> logits float32 (N, 3)" in result.stdout
    assert Path("deep/flowers.onnx").stat().st_size > 1000


def test_photos_to_export_without_calibration(run, trained, photos):
    result = run("export", trained, "--photos", photos)
    assert result.exit_code == 1
    assert "error: --photos is for --int8, --fp16 and --tflite: leave it out" in result.stderr


def test_what_was_there_is_said_to_be_replaced(run, kit):
    assert run("export", kit).stdout.startswith("wrote model.onnx (")
    assert Path("model.onnx").exists()
    assert run("export", kit).stdout.startswith("replaced model.onnx (")


def test_export_in_fewer_bits(run, kit, photos):
    result = run("export", kit, "--int8", "--photos", photos)
    assert result.exit_code == 0, result.output
    assert "of its answers are those of the model; the logits are off by " in result.stdout
    assert "wrote model.onnx (" in result.stdout
    assert "fp16: there are no photos to compare it on" in run("export", kit, "--fp16").stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--int8", "--fp16"], "exclude each other: choose one"),
        (["--float32", "--int8"], "exclude each other: choose one"),
        (["--tflite", "--fp16"], "--tflite is not possible with --fp16"),
        (["--tflite", "--output", "classes"], "--tflite: leave out --tflite"),
        (["--int8", "--output", "classes"], "--int8: leave out --int8"),
        (["--int8"], "is not a run; give PHOTOS to evaluate, or --photos to export"),
        (["--tflite", "--out", "model.onnx"], "is that of an ONNX file: leave out --tflite"),
        (["--fp16", "--out", "model.tflite"], "--tflite is not possible with --fp16"),
    ],
)
def test_export_in_fewer_bits_refuses(run, kit, options, said):
    result = run("export", kit, *options)
    assert result.exit_code == 1
    assert said in result.stderr
    assert not Path("model.onnx").exists()


def test_export_for_tensorflow_lite(run, kit, photos):
    pytest.importorskip("ai_edge_litert", reason="needs the extra tflite")
    result = run("export", kit, "--tflite", "--photos", photos)
    assert result.exit_code == 0, result.output
    assert "int8: on 6 photos, " in result.stdout
    assert "wrote model.tflite (" in result.stdout
    assert "images uint8 (1, 16, 16, 3) -> logits float32 (1, 3), whose softmax" in result.stdout
    result = run("export", kit, "--tflite", "--float32", "--out", "whole.tflite")
    assert "float32: there are no photos to compare it on" in result.stdout
    assert Path("whole.tflite").stat().st_size > 1000
    run("export", kit, "--float32", "--out", "named.tflite")
    assert Path("named.tflite").read_bytes() == Path("whole.tflite").read_bytes()
    refused = run("export", kit, "--tflite")
    assert (
        refused.exit_code == 1
        and "is not a run; give PHOTOS to evaluate, or --photos to export" in refused.stderr
    )


def test_a_file_in_halves_that_is_larger_says_so(run):
    told = run("export", "blocks", "--fp16").stdout
    assert "the file is larger than the ONNX file without these options (1.7 MB)" in told
