"""Networks that were published with their weights, and kits of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pocketune.authoring import build_kit
from pocketune.data import load_splits
from pocketune.methods import Method

BATCH = 8


@dataclass(frozen=True)
class Pretrained:
    """The network that published weights are for."""

    network: str
    width: float
    size: int
    padding: str = "symmetric"

    def to_dict(self, weights: Path) -> dict[str, Any]:
        """The network with these weights, for a comparison."""
        return {**asdict(self), "weights": str(weights)}

    def options(self, weights: Path | str | None) -> dict[str, Any]:
        """Those of `create_network` for these weights; random ones for None."""
        named = None if weights is None else str(weights)
        return {"weights": named, "width": self.width, "padding": self.padding}

    def kit(self, out: Path, method: Method, weights: Path | None, photos: Path) -> None:
        """Build the kit that `pocketune train` would build; no weights are random ones."""
        build_kit(
            out,
            network=self.network,
            method=method,
            **self.options(weights),
            size=self.size,
            batch=BATCH,
            photos=load_splits(photos / "train", val_fraction=0.0).train,
        )


NETWORKS = {
    "mbv2-w0.35": Pretrained("mobilenet_v2", 0.35, 128),
    "proxyless-w0.3": Pretrained("proxylessnas_mobile", 0.3, 128),
    "mcunet-5fps": Pretrained("mcunet_5fps", 1.0, 128),
    "mbv2-w1.0": Pretrained("mobilenet_v2", 1.0, 160, "same"),
}


def kept_kit(kit: Path, method: Method, data: Path, name: str, photos: Path) -> Path:
    """A kit of the network with this name for these photos, built unless it is there."""
    if not kit.exists():
        NETWORKS[name].kit(kit, method, weights_file(data, name), photos)
    return kit


def weights_file(data: Path, name: str) -> Path:
    """The file with the weights of a network."""
    return data / "weights" / f"{name}.float32.safetensors"
