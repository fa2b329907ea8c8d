"""Multi-head attention as matrix products, compared with PyTorch's own."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from pocketune.compiler.capture.attention import multi_head

IMAGES, TOKENS, WIDTH, HEADS = 3, 5, 8, 2

CAUSAL = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
PADDED = torch.arange(TOKENS).expand(IMAGES, -1) >= torch.tensor([[5], [3], [4]])
BIAS = torch.linspace(-2, 2, IMAGES * HEADS * TOKENS**2).view(-1, TOKENS, TOKENS).double()


class Products(TorchFunctionMode):
    """Runs attention as products."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is not nn.functional.multi_head_attention_forward:
            return func(*args, **(kwargs or {}))
        result = multi_head(*args, **(kwargs or {}))
        assert result is not NotImplemented
        return result


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"attn_mask": CAUSAL},
        {"attn_mask": CAUSAL, "is_causal": True},
        {"attn_mask": BIAS[0]},
        {"attn_mask": BIAS},
        {"key_padding_mask": PADDED},
        {"key_padding_mask": PADDED, "attn_mask": CAUSAL},
        {"average_attn_weights": False},
    ],
    ids=["none", "causal", "flag", "bias", "of each head", "padding", "both", "heads"],
)
def test_masks(options: dict[str, Any], need_weights: bool) -> None:
    check(nn.MultiheadAttention(WIDTH, HEADS), [WIDTH] * 3, need_weights=need_weights, **options)


@pytest.mark.parametrize("bias", [True, False])
def test_keys_and_values_of_other_widths(bias: bool) -> None:
    attention = nn.MultiheadAttention(WIDTH, HEADS, bias=bias, kdim=6, vdim=7, batch_first=True)
    check(attention, [WIDTH, 6, 7])


def check(attention: nn.MultiheadAttention, widths: list[int], **options: Any) -> None:
    torch.manual_seed(0)
    attention = attention.double()
    shape = (IMAGES, TOKENS) if attention.batch_first else (TOKENS, IMAGES)
    given = [torch.randn(*shape, width).double().requires_grad_() for width in widths]

    def run() -> list[Tensor | None]:
        y, weights = attention(*given, **options)
        return [y, weights, *torch.autograd.grad(y.square().sum(), given)]

    expected = run()
    with Products():
        found = run()
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other)
