"""Names of networks that many tests run over."""

from pocketune.networks import list_networks

YOUNGER = (
    "convnext_atto",
    "deit_tiny",
    "efficientnet_b0",
    "efficientnet_lite0",
    "efficientnet_v2_s",
    "fastvit_t8",
    "mobilenet_v4_small",
    "mobilevit_xxs",
    "repvit_m0_9",
    "vit_tiny",
)
"""Networks with tests of their own, on tiny versions: the others' would take too long on them."""

EVERY_METHOD = [name for name in list_networks(dense=False) if name not in YOUNGER]
"""Networks of inverted residuals, basic blocks and bottlenecks, which every method adapts."""
