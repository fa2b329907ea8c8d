"""The recipe of Frigate NVR in TensorFlow, in a process of its own; see bench_frigate.py.

    python benchmarks/frigate_tensorflow.py train PHOTOS EPOCHS
    python benchmarks/frigate_tensorflow.py head FEATURES.npz

The recipe is that of frigate/util/classification.py (github.com/blakeblackshear/frigate):
MobileNetV2 0.35 without its top, frozen; average pooling, a dense layer of 128 with ReLU, dropout
of 0.3 and a softmax; Adam at 1e-3, batch 16, 224 px, a fifth of the photos for validation; then
conversion to TFLite in 8 bits with 300 photos. Nothing of Pocketune is imported here.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import tensorflow as tf

SIZE, BATCH, EPOCHS, CALIBRATION = 224, 16, 50, 300


def megabytes() -> float:
    """Resident high-water mark of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e6


def top(classes: int) -> list[Any]:
    layers = tf.keras.layers
    return [
        layers.Dense(128, activation="relu"),
        layers.Dropout(0.3),
        layers.Dense(classes, activation="softmax"),
    ]


def compiled(model: Any) -> Any:
    adam = tf.keras.optimizers.Adam(1e-3)
    model.compile(adam, loss="categorical_crossentropy", metrics=["accuracy"])
    return model


def train(photos: str, epochs: int) -> dict[str, float]:
    """Peak and seconds after the import, the training and the conversion."""
    found = {"import": megabytes()}
    start = perf_counter()
    generator = tf.keras.preprocessing.image.ImageDataGenerator(
        rescale=1 / 255, validation_split=0.2
    )
    flow = {"target_size": (SIZE, SIZE), "batch_size": BATCH, "class_mode": "categorical"}
    training = generator.flow_from_directory(photos, subset="training", **flow)
    validation = generator.flow_from_directory(photos, subset="validation", **flow)
    # Its published weights would be downloaded; memory and time do not depend on the values.
    base = tf.keras.applications.MobileNetV2(
        input_shape=(SIZE, SIZE, 3), include_top=False, weights=None, alpha=0.35
    )
    base.trainable = False
    pooling = tf.keras.layers.GlobalAveragePooling2D()
    model = compiled(tf.keras.Sequential([base, pooling, *top(training.num_classes)]))
    model.fit(training, epochs=epochs, validation_data=validation, verbose=0)
    found |= {"train": megabytes(), "train_seconds": perf_counter() - start}
    convert(model, photos)
    return found | {"convert": megabytes(), "seconds": perf_counter() - start}


def convert(model: Any, photos: str) -> None:
    files = sorted(Path(photos).rglob("*.jpg"))[:CALIBRATION]

    def samples() -> Any:
        for file in files:
            image = tf.keras.utils.load_img(file, target_size=(SIZE, SIZE))
            yield [np.asarray(image, np.float32)[None] / 255]

    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = samples
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.uint8
    converter.convert()


def head(file: str) -> dict[str, list[float]]:
    """Accuracy in percent of the top, trained on given features of a frozen network."""
    data, scores = np.load(file), []
    classes = int(data["labels"].max()) + 1
    for seed in range(4):
        tf.keras.utils.set_random_seed(seed)
        model = compiled(tf.keras.Sequential(top(classes)))
        order = np.random.default_rng(seed).permutation(len(data["labels"]))
        order = order[len(order) // 5 :]  # the rest is for validation and thrown away
        labels = tf.keras.utils.to_categorical(data["labels"], classes)
        model.fit(data["features"][order], labels[order], BATCH, EPOCHS, verbose=0)
        guesses = model.predict(data["test_features"], verbose=0).argmax(1)
        scores.append(100 * float((guesses == data["test_labels"]).mean()))
    return {"top1": scores}


if __name__ == "__main__":
    _, task, path, *rest = sys.argv
    print(json.dumps(train(path, int(rest[0])) if task == "train" else head(path)))
