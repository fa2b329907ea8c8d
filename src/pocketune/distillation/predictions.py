"""The loss with labels and with a teacher's predictions."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pocketune.data import ImageDataset
from pocketune.errors import PocketuneError
from pocketune.networks import anatomy
from pocketune.objectives import objective_of


class Predictions:
    """The loss with the labels, and the divergence from the teacher's predictions.

    Hinton et al., Distilling the Knowledge in a Neural Network, 2015; the gradients of both parts
    have the same scale.

    Args:
        network: The network to train, as a whole.
        photos: Labeled images. If their classes differ from the network's, only the teacher is
            followed.
        teacher: A network with as many classes, or None.
        share: Share of the loss for the teacher; the labels have the rest.
        temperature: Divides the logits.
        label_smoothing: The label smoothing of the photos' task.

    Attributes:
        model: The trained module; `loss` takes its output.
        teacher: The module to follow, to be moved to the device of the model.

    Raises:
        PocketuneError: The photos have other classes and there is no teacher, or the teacher has
            other classes.
    """

    def __init__(
        self,
        network: nn.Module,
        photos: ImageDataset,
        teacher: nn.Module | None,
        *,
        share: float,
        temperature: float,
        label_smoothing: float,
    ) -> None:
        classes = _classes(network)
        if teacher is not None and _classes(teacher) != classes:
            raise PocketuneError(
                f"the teacher has {_classes(teacher)} classes and the network {classes}; give the "
                "network that it was pruned from"
            )
        same = photos.labeled.dense == bool(anatomy(network).decode_head)
        labeled = same and len(photos.classes) == classes
        if not same and teacher is None:
            labels, outputs = ("masks", "images") if photos.labeled.dense else ("classes", "pixels")
            raise PocketuneError(
                f"the photos have {labels}, and the network classifies {outputs}: give the "
                "unpruned network as teacher, which needs no labels, or photos with labels of its "
                "kind"
            )
        if not labeled and teacher is None:
            raise PocketuneError(
                f"the photos have {len(photos.classes)} classes and the network {classes}: give "
                "the unpruned network as teacher, which needs no labels, or photos of the same "
                "classes"
            )
        self.model: nn.Module = network
        self.teacher = teacher
        self._share = share if labeled else 1.0
        self._temperature = temperature
        self._attributes = labeled and photos.labeled.activation == "sigmoid"
        self._objective = objective_of(photos.labeled.configured(label_smoothing=label_smoothing))

    @property
    def has_both_parts(self) -> bool:
        """Whether the loss has a part with the labels and one with the teacher."""
        return self.teacher is not None and 0 < self._share < 1

    def loss(self, output: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        """The loss () of logits (N, classes) or, for masks, (N, classes, h, w)."""
        return self.loss_to(self.targets(images), output, labels)

    @torch.no_grad()
    def targets(self, images: Tensor) -> Tensor | None:
        """Logarithms of the teacher's soft labels, see `_log_shares`; None if not followed."""
        if self.teacher is None or self._share == 0:
            return None
        return self._log_shares(self.teacher(images))

    def loss_to(self, wanted: Tensor | None, output: Tensor, labels: Tensor) -> Tensor:
        """The loss () of logits (N, classes, ...), with the `targets` of the images."""
        share = 0.0 if self.teacher is None else self._share
        loss = output.new_zeros(())
        if share < 1:
            loss = (1 - share) * self._objective.loss(output, labels)
        if wanted is not None:
            given = self._log_shares(output)
            apart = F.kl_div(given, wanted, reduction="none", log_target=True).sum(1).mean()
            questions = output.shape[1] if self._attributes else 1
            loss = loss + share * self._temperature**2 * apart / questions
        return loss

    def _log_shares(self, logits: Tensor) -> Tensor:
        """Logarithms of the soft labels of logits (N, classes, ...).

        Each attribute is a question of its own: (N, 2 attributes), of its presence and absence.
        """
        logits = logits / self._temperature
        if self._attributes:
            return F.logsigmoid(torch.cat([logits, -logits], 1))
        return F.log_softmax(logits, 1)


def _classes(network: nn.Module) -> int:
    return len(network.get_parameter(f"{anatomy(network).classifier[-1]}.weight"))
