"""Measure every figure that is claimed; `make bench` runs this.

    python benchmarks/every.py [NAME ...]

The names are those of files in benchmarks/results; without a name, all of them are made. Scripts
whose photos or weights are missing are skipped. If a script fails, the others still run, and the
exit code is 1.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

RUNS = {
    "bundled": "bench_bundled.py --parts kits --fresh",
    "bundled_masks": "bench_bundled.py --parts masks --fresh",
    "first_blocks": "bench_bundled.py --parts blocks --fresh",
    "few_photos": "bench_few_photos.py --fresh",
    "compile": "bench_compile.py",
    "arena": "bench_arena.py",
    "backbones": "bench_backbones.py --fresh",
    "cache_memory": "bench_cache.py --parts memory",
    "cache_accuracy": "bench_cache.py --parts accuracy",
    "activation_pruning": "bench_activation_pruning.py --fresh",
    "adam8": "bench_adam8.py",
    "delta": "bench_delta.py",
    "export": "bench_export.py",
    "extractor": "bench_extractor.py --fresh --seeds 3",
    "few_bit_accuracy": "bench_few_bit.py --parts accuracy --fresh",
    "few_bit_norms": "bench_few_bit.py --parts norms --fresh",
    "few_bit_steps": "bench_few_bit.py --parts steps --fresh",
    "filter": "bench_filter.py",
    "filter_quality": "bench_filter_quality.py --photos 16",
    "filter_step": "bench_filter_step.py",
    "forecast": "bench_forecast.py --fresh",
    "frigate": "bench_frigate.py",
    "frozen_eager": "bench_frozen_eager.py",
    "hard_limit": "bench_hard_limit.py",
    "lbp_wht": "bench_lbp_wht.py --networks small vit_tiny --photos 4000"
    " --pretraining 12 --seeds 3 --tested 1000",
    "lbp_wht_costs": "bench_lbp_wht_costs.py",
    "long": "bench_long.py",
    "memory_causes": "bench_memory_causes.py",
    "memory_held_out": "bench_memory.py --part held-out --fresh",
    "memory_unseen": "bench_memory.py --part unseen --fresh",
    "memory_small": "bench_memory.py --part small --fresh",
    "memory_masks": "bench_memory.py --part masks --fresh",
    "methods": "bench_methods.py --fresh",
    "micro_batch": "bench_micro_batch.py",
    "mobiletl_step_mobilenet_v2": "bench_mobiletl_step.py",
    "mobiletl_step_mobilenet_v3_small": "bench_mobiletl_step.py",
    "cold_start": "bench_cold_start.py --fresh",
    "onnx": "bench_onnx.py",
    "onnxsim": "bench_onnxsim.py",
    "photo_budgets": "bench_photo_budgets.py --fresh",
    "photos": "bench_photos.py",
    "plan": "bench_plan.py --fresh",
    "prune": "bench_prune.py",
    "masks_rates": "bench_masks.py --parts rates --fresh",
    "masks_start": "bench_masks.py --parts start --steps 160 --fresh",
    "masks_stride": "bench_masks.py --parts stride --steps 160 --fresh",
    "repnet_memory": "bench_repnet_memory.py",
    "segmentation": "bench_segmentation.py",
    "step": "bench_step.py",
    "step_avx2": "bench_step.py --result step_avx2",  # on a processor without VNNI
    "studio": "bench_studio.py",
    "studio-w1": "bench_studio.py --width 1 --sizes 128 224",
    "supernet": "bench_supernet.py",
    "supernet_cifar": "bench_supernet_cifar.py",
    "tinytl": "bench_tinytl.py",
    "defaults_adam": "bench_defaults.py --optimizer adam",
    "defaults_sgd": "bench_defaults.py --optimizer sgd",
    "uneven": "bench_uneven.py",
    "unknown": "bench_unknown.py",
    "group_norm": "bench_group_norm.py --fresh --follow 16 --epochs 4",
    "filter_accuracy": "bench_filter_accuracy.py",
    "filter_segmentation": "bench_filter_segmentation.py --fresh",
    "repnet_accuracy_mbv2-w0.35": "bench_repnet_accuracy.py --network mbv2-w0.35 --fresh",
    "repnet_accuracy_mbv2-w1.0": "bench_repnet_accuracy.py --network mbv2-w1.0 --fresh",
    "resolution": "bench_resolution.py --fresh",
    "accuracy_mbv2-w0.35": "bench_accuracy.py --network mbv2-w0.35 --fresh",
    "accuracy_proxyless-w0.3": "bench_accuracy.py --network proxyless-w0.3 --fresh",
    "accuracy_mcunet-5fps": "bench_accuracy.py --network mcunet-5fps --fresh",
    "accuracy_mbv2-w1.0": "bench_accuracy.py --network mbv2-w1.0 --fresh",
}
"""What each file of benchmarks/results is made with, short runs first."""

FIGURES = "figures.py"
"""Draws what the others have found."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(RUNS))
    names = parser.parse_args().names or list(RUNS)
    if unknown := [name for name in names if name not in RUNS]:
        parser.error(f"{unknown[0]} is not a result; choose from {', '.join(RUNS)}")
    failed = []
    for line in dict.fromkeys([*(RUNS[name] for name in names), FIGURES]):
        print(f"== {line}", flush=True)
        script, *arguments = line.split()
        command = [sys.executable, str(Path(__file__).with_name(script)), *arguments]
        if subprocess.run(command, check=False).returncode:
            failed.append(line)
    sys.exit("\n".join(["failed:", *failed]) if failed else 0)


if __name__ == "__main__":
    main()
