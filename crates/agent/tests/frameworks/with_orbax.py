"""Orbax' CheckpointManager: 1 to 3; a run that goes on saves one more, and keeps two. Also what it keeps beside a state."""

import os
import sys

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp


def manager(directory, keep):
    options = ocp.CheckpointManagerOptions(max_to_keep=keep, enable_async_checkpointing=True)
    return ocp.CheckpointManager(directory, options=options)


def state(step):
    return {"weights": jnp.full((8, 8), step), "step": jnp.array(step)}


def save(saver, step):
    content = ocp.args.Composite(state=ocp.args.StandardSave(state(step)), extra=ocp.args.JsonSave({"step": step}))
    plain = ocp.args.StandardSave(state(step))
    saver.save(step, args=content if os.environ.get("COMPOSITE") else plain)


if __name__ == "__main__":
    command, directory, *rest = sys.argv[1:]
    if command == "save":
        with manager(directory, None) as saver:
            for step in range(1, 4):
                save(saver, step)
    else:
        path, step = rest[0], int(rest[1])
        with manager(directory, 2) as saver:
            assert saver.latest_step() == step, saver.all_steps()
            assert os.path.basename(path) == str(step)
            restore = ocp.args.StandardRestore(state(0))
            if os.environ.get("COMPOSITE"):
                content = saver.restore(step, args=ocp.args.Composite(state=restore)).state
            else:
                content = saver.restore(step, args=restore)
            assert content["step"] == step
            save(saver, step + 1)
        with manager(directory, 2) as saver:
            assert saver.latest_step() == step + 1
    print(ocp.__version__, jax.__version__)
