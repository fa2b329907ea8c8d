"""Attention and Einstein sums as matrix products that keep the images in the first dimension.

PyTorch's own attention on the CPU is one operator with its own backward pass. Its multi-head
attention and its `einsum` move the images behind other dimensions and merge them there, where a
graph for any number of images cannot have them.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def scaled_dot_product(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """`softmax(query key^T * scale + mask) value` over the last two dimensions."""
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (x.repeat_interleave(groups, -3) for x in (key, value))
    if is_causal:
        attn_mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query * scale) @ key.transpose(-2, -1)
    if attn_mask is None or attn_mask.dtype != torch.bool:
        weights = (scores if attn_mask is None else scores + attn_mask).softmax(-1)
    else:
        # with minus infinity, a row that is masked as a whole, and its gradients, would be NaN
        weights = scores.masked_fill(~attn_mask, torch.finfo(scores.dtype).min).softmax(-1)
        weights = weights.masked_fill(~attn_mask, 0)
    return functional.dropout(weights, dropout_p) @ value


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    """The scores plus a mask, or those of the True elements replaced by minus infinity."""
    is_bool = mask.dtype == torch.bool
    return scores.masked_fill(mask, -math.inf) if is_bool else scores + mask


def multi_head(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,  # noqa: ARG001 - as the function has it
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    **others: Any,
) -> Any:
    """The attention of `nn.MultiheadAttention`, (T, N, E) each; see PyTorch for the arguments.

    `is_causal` only says that `attn_mask` is causal.
    """
    added = any(others.get(name) is not None for name in ("static_k", "static_v"))
    if query.dim() != 3 or added or bias_k is not None or bias_v is not None or add_zero_attn:
        return NotImplemented
    if in_proj_weight is None:
        weights = tuple(others[f"{name}_proj_weight"] for name in "qkv")
    else:
        weights = in_proj_weight.chunk(3)
    biases = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
    q, k, v = (
        _in_heads(functional.linear(x.transpose(0, 1), weight, bias), num_heads)
        for x, weight, bias in zip((query, key, value), weights, biases, strict=True)
    )
    scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-2, -1)
    if attn_mask is not None:
        if attn_mask.dim() == 3:  # (N * heads, T, T)
            attn_mask = attn_mask.view(-1, num_heads, *attn_mask.shape[1:])
        scores = _masked(scores, attn_mask)
    if key_padding_mask is not None:  # (N, T)
        scores = _masked(scores, key_padding_mask[:, None, None])
    weights_of_tokens = functional.dropout(scores.softmax(-1), dropout_p, training)
    y = (weights_of_tokens @ v).transpose(1, 2).flatten(2)
    y = functional.linear(y, out_proj_weight, out_proj_bias).transpose(0, 1)
    if not need_weights:
        return y, None
    return y, weights_of_tokens.mean(1) if average_attn_weights else weights_of_tokens


def _in_heads(x: Tensor, heads: int) -> Tensor:
    """(N, heads, T, E / heads) of (N, T, E)."""
    images, tokens, _ = x.shape
    return x.reshape(images, tokens, heads, -1).transpose(1, 2)


def einsum(equation: Any, *operands: Any) -> Any:
    """An Einstein sum of two tensors as one matrix product.

    If other dimensions are batches of the product, the first dimension of the first tensor is one
    too: it may be that of the images, and must not be merged with one behind them.
    """
    if not isinstance(equation, str) or len(operands) != 2:
        return NotImplemented
    inputs, arrow, result = equation.replace(" ", "").partition("->")
    left, _, right = inputs.partition(",")
    plain = all(part.isalpha() and len(set(part)) == len(part) for part in (left, right, result))
    if not arrow or not plain or not {*result} <= {*left, *right}:
        return NotImplemented
    if any(letter not in right + result for letter in left):
        return NotImplemented  # summed over one tensor alone
    if any(letter not in left + result for letter in right):
        return NotImplemented
    a, b = operands
    batch = [letter for letter in left if letter in right and letter in result]
    if batch and left[0] in result and left[0] not in batch:
        batch.insert(0, left[0])
    summed = [letter for letter in left if letter in right and letter not in result]
    rows = [letter for letter in left if letter not in right and letter not in batch]
    columns = [letter for letter in right if letter not in left]
    sizes = {**dict(zip(left, a.shape, strict=True)), **dict(zip(right, b.shape, strict=True))}
    a = _grouped(a, left, (batch, rows, summed))
    b = _grouped(b, right, (batch, summed, columns))
    y = (a @ b).reshape([sizes[letter] for letter in (*batch, *rows, *columns)])
    order = [*batch, *rows, *columns]
    return y.permute([order.index(letter) for letter in result])


def _grouped(x: Tensor, letters: str, groups: tuple[list[str], list[str], list[str]]) -> Tensor:
    """(*batch, first group, second group); batch dimensions that `x` lacks are of size 1."""
    batch, first, second = groups
    here = [letter for letter in batch if letter in letters]
    x = x.permute([letters.index(letter) for letter in (*here, *first, *second)])
    held = [x.shape[here.index(letter)] if letter in here else 1 for letter in batch]
    inner = x.shape[len(here) :]
    return x.reshape(*held, math.prod(inner[: len(first)]), math.prod(inner[len(first) :]))
