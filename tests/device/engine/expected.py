"""Engines of tiny kits, and the same network in numpy."""

from pathlib import Path

import numpy as np

from pocketune.device.engine.onnx import OnnxEngine

from ..tiny_kit import TinyKit


def batch(tiny: TinyKit, seed: int = 0, n: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Pixels and labels, of a batch of the kit or of another number."""
    rng = np.random.default_rng(seed)
    n = tiny.batch if n is None else n
    images = rng.integers(0, 256, (n, tiny.size, tiny.size, 3), dtype=np.uint8)
    return images, rng.integers(0, len(tiny.classes), n)


def make(tiny: TinyKit, tmp_path: Path) -> OnnxEngine:
    """An engine with the values of the kit."""
    kit = tiny.write(tmp_path / "kit")
    return OnnxEngine(kit, kit.state())


def features(tiny: TinyKit, images: np.ndarray) -> np.ndarray:
    """What the frozen part computes."""
    pixels = images.reshape(len(images), 3 * tiny.size**2).astype(np.float64) / 255
    return np.maximum(pixels @ tiny.frozen(), 0)


def logits(
    tiny: TinyKit, state: dict[str, np.ndarray], images: np.ndarray, mask: np.ndarray | float = 1.0
) -> np.ndarray:
    """What the network computes with a state."""
    hidden = (features(tiny, images) - state.get("norm.running_mean", 0)) * mask
    result: np.ndarray = state["scale"] * (hidden @ state["fc.weight"].T + state["fc.bias"])
    return result


def loss_of(logits: np.ndarray, labels: np.ndarray) -> float:
    """The mean cross-entropy."""
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    return float(-log_p[np.arange(len(labels)), labels].mean())
