"""The file from which a stopped run resumes."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from pocketune.data import ImageDataset
from pocketune.errors import PocketuneError
from pocketune.files import reading
from pocketune.weights.formats.files import write_state

HEADER = "pocketune.retraining"
MOMENTUM = "momentum_buffer"


def hash_photos(photos: ImageDataset) -> str:
    """A hash of the photos' names and labels."""
    digest = hashlib.sha256()
    photos.add_to(digest)
    return digest.hexdigest()


def hash_values(network: nn.Module | None) -> str | None:
    """A hash of the names and values of a network; None without one."""
    if network is None:
        return None
    return _hash_state(network.state_dict())


def _hash_state(state: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(state.items()):
        digest.update(name.encode() + value.cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class EpochCheckpoint:
    """The file from which a stopped run resumes: all values and momenta; never a pickle.

    Attributes:
        path: The file.
        network: What is trained.
        optimizer: Its optimizer.
        identity: `recipe`, and hashes of `photos`, of `teacher`, and of the `network` before
            anything was trained: a run resumes with the same ones only.
    """

    path: Path
    network: nn.Module
    optimizer: torch.optim.SGD
    identity: dict[str, Any]

    def save(self, epochs: int) -> None:
        """Write the state after so many epochs, whole or not at all."""
        tensors = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        for name, parameter in self.network.named_parameters():
            if MOMENTUM in self.optimizer.state[parameter]:
                tensors[f"{MOMENTUM}.{name}"] = self.optimizer.state[parameter][MOMENTUM]
        write_state(self.path, tensors, HEADER, {"epochs": epochs, **self.identity})

    def resume(self) -> int:
        """Load what `save` has written; returns how many epochs are done."""
        if not self.path.exists():
            return 0
        facts, tensors = self._read()
        if "network" not in facts:
            raise PocketuneError(
                f"{self.path} was written by another version of Pocketune; remove it to start over"
            )
        prefix = "network."
        state = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
        # a network that is read from the file that it is written to has the values of that run
        if self.identity["network"] == _hash_state(state):
            facts["network"] = self.identity["network"]
        self._require_same(facts)
        self._load(state, tensors)
        return int(facts["epochs"])

    def _read(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        damage = (SafetensorError, KeyError, ValueError)
        with (
            reading(self.path, *damage, remedy="remove it to start over"),
            safe_open(self.path, "pt") as file,
        ):
            facts = json.loads((file.metadata() or {})[HEADER])
            return facts, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118

    def _require_same(self, facts: dict[str, Any]) -> None:
        if facts["recipe"] != self.identity["recipe"]:
            raise PocketuneError(
                f"{self.path} was left by a run with another recipe; remove it to start over, or "
                f"continue with {facts['recipe']}"
            )
        for what, other in (
            ("photos", "other photos"),
            ("teacher", "another teacher or none"),
            ("network", "another network, or one of other values"),
        ):
            if facts[what] != self.identity[what]:
                raise PocketuneError(
                    f"{self.path} was left by a run with {other}; remove it to start over, or "
                    f"continue with the original {what}"
                )

    def _load(self, state: dict[str, Tensor], tensors: dict[str, Tensor]) -> None:
        with reading(self.path, RuntimeError, remedy="remove it to start over"):
            self.network.load_state_dict(state)
        for name, parameter in self.network.named_parameters():
            if (momentum := tensors.get(f"{MOMENTUM}.{name}")) is not None:
                self.optimizer.state[parameter][MOMENTUM] = momentum.to(parameter.device)
