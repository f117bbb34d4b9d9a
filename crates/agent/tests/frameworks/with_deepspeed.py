"""DeepSpeed with one process: global_step1 to global_step3, and `latest`; a run that goes on saves one more.

The first run builds an extension, which takes minutes."""

import os
import socket
import sys

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
os.environ.update(
    MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", DS_ACCELERATOR="cpu")

import deepspeed
import torch

CONFIG = {
    "train_batch_size": 4,
    "optimizer": {"type": "Adam", "params": {"torch_adam": True}},
    "zero_optimization": {"stage": 1},
}


def train(engine, directory):
    engine.backward(engine(torch.ones(4, 8)).sum())
    engine.step()
    engine.save_checkpoint(directory)


if __name__ == "__main__":
    command, directory, *rest = sys.argv[1:]
    deepspeed.init_distributed("gloo")
    model = torch.nn.Linear(8, 8)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    if command == "save":
        for _ in range(3):
            train(engine, directory)
    else:
        path, step = rest[0], int(rest[1])
        # It finds the newest by `latest`.
        loaded, _ = engine.load_checkpoint(directory)
        assert loaded and os.path.dirname(loaded) == path, (loaded, path)
        assert engine.global_steps == step, engine.global_steps
        train(engine, directory)
    print(deepspeed.__version__, torch.__version__)
