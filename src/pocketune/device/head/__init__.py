"""The output layer in closed form, from the embeddings of labeled photos."""

from pocketune.device.head.fit import Head, fit_head, left_out

__all__ = ["Head", "fit_head", "left_out"]
