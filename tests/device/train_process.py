"""A run in its own process, to be killed: `train_process.py KIT PHOTOS RUN`.

It keeps features if the kit has a frozen part.
"""

import sys
from pathlib import Path

from softmax_engine import FrozenEngine  # this file's folder is the first place to look

from pocketune.device.train.progress import Silent
from pocketune.device.train.run import resume, train
from pocketune.kit.names import LAST

EPOCHS = 24
CHECKPOINT_STEPS = 2


def main(kit: str, photos: str, run: str) -> None:
    print("ready", flush=True)
    if (Path(run) / LAST).exists():
        resume(run, engine=FrozenEngine, progress=Silent())
        return
    train(
        kit,
        photos,
        out=run,
        epochs=EPOCHS,
        lr=0.01,
        checkpoint_every=CHECKPOINT_STEPS,
        engine=FrozenEngine,
        progress=Silent(),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
