"""What flax.training.checkpoints saves: checkpoint_1 to checkpoint_3, by Orbax or (LEGACY) as files of msgpack."""

import os
import sys

import flax
import jax.numpy as jnp
from flax.training import checkpoints

flax.config.update("flax_use_orbax_checkpointing", not os.environ.get("LEGACY"))


def state(step):
    return {"weights": jnp.full((8, 8), step), "step": step}


if __name__ == "__main__":
    command, directory, *rest = sys.argv[1:]
    if command == "save":
        for step in range(1, 4):
            checkpoints.save_checkpoint(directory, state(step), step, keep=5)
    else:
        path, step = rest[0], int(rest[1])
        assert int(checkpoints.restore_checkpoint(path, state(0))["step"]) == step
        assert checkpoints.latest_checkpoint(directory) == path
        checkpoints.save_checkpoint(directory, state(step + 1), step + 1, keep=2)
    print(flax.__version__)
