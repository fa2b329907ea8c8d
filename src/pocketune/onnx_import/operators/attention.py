"""Attention as one operator, as opsets 23 and newer have it."""

from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from pocketune.onnx_import.file import Node, OnnxFile
from pocketune.onnx_import.operators.registry import constant, makes, mixing, refusal
from pocketune.onnx_import.parts import tensor_of

_CACHES = ("past_key", "past_value", "nonpad_kv_seqlen")
"""The inputs behind query, key, value and mask, which language models have."""


class Attention(nn.Module):
    """Scaled dot-product attention, `softmax(query key^T * scale + mask) value`.

    Args:
        heads: Of queries, and of keys and values, for tokens (N, T, heads * D); None for
            (N, heads, T, D).
        scale: Factor of the products; 1 / sqrt(D) without one.
        mask: Added to the products; or True where a token is read.
    """

    def __init__(
        self, heads: tuple[int, int] | None, scale: float | None, mask: Tensor | None
    ) -> None:
        super().__init__()
        self.heads = heads
        self.scale = scale
        self.register_buffer("mask", mask)
        self.mask: Tensor | None

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """The mixed values, in the shape of the queries."""
        if self.heads is not None:
            several = self.heads[0], self.heads[1], self.heads[1]
            query, key, value = (
                x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)
                for x, heads in zip((query, key, value), several, strict=True)
            )
        attend = partial(functional.scaled_dot_product_attention, attn_mask=self.mask)
        grouped = query.shape[1] != key.shape[1]
        mixed = attend(query, key, value, scale=self.scale, enable_gqa=grouped)
        return mixed if self.heads is None else mixed.transpose(1, 2).flatten(2)


@makes("Attention")
def _attention(node: Node, file: OnnxFile) -> nn.Module:
    for place, name in enumerate(_CACHES, 4):
        if node.inputs[place : place + 1] not in ((), ("",)):
            raise refusal(node, file, f"has the input {name}, of a language model")
    if node.attributes.get("softcap", 0.0):
        raise refusal(node, file, "limits its products (softcap)")
    if node.data != node.inputs[:3]:
        raise refusal(node, file, "has queries, keys or values that are constant, or another mask")
    sides = [file.values[name].shape for name in node.data]
    if any(any(file.counts(name)[-2:]) for name in node.data):
        raise mixing(node, file, "works along the images of a batch")
    heads = None
    if len(sides[0]) == 3:
        heads = int(node.attributes["q_num_heads"]), int(node.attributes["kv_num_heads"])
    scale = node.attributes.get("scale")
    tokens = sides[0][-2], sides[1][-2]
    return Attention(heads, None if scale is None else float(scale), _mask(node, file, tokens))


def _mask(node: Node, file: OnnxFile, tokens: tuple[int, int]) -> Tensor | None:
    """The mask of a node for (queries, keys); one of causal attention is a part of it."""
    given = constant(node, 3, file)
    if given is not None and given.shape[-1] != tokens[1]:
        raise refusal(node, file, "has a mask for another number of tokens")
    if not node.attributes.get("is_causal", 0):
        return None if given is None else tensor_of(given)
    before = np.tri(*tokens, dtype=bool)
    if given is None:
        return tensor_of(before)
    is_bool = given.dtype == bool
    masked = given & before if is_bool else np.where(before, given, np.float32("-inf"))
    return torch.tensor(masked)
