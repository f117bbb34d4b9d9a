"""torch.distributed.checkpoint by two processes: step_1 to step_3; a run that goes on saves one more."""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as processes


def state():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2,))
    weight = distribute_tensor(torch.zeros(8, 8), mesh, [Shard(0)])
    return {"weight": weight, "step": torch.zeros(1), "epoch": 0}


def work(rank, command, directory, path, step, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    content = state()
    if command == "save":
        for step in range(1, 4):
            content["step"].fill_(step)
            dcp.save(content, checkpoint_id=os.path.join(directory, f"step_{step}"))
    else:
        dcp.load(content, checkpoint_id=path)
        assert content["step"].item() == step, content
        content["step"].fill_(step + 1)
        dcp.save(content, checkpoint_id=os.path.join(directory, f"step_{step + 1}"))
    dist.destroy_process_group()


if __name__ == "__main__":
    command, directory, path, step = (sys.argv[1:] + [None, 0])[:4]
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes.spawn(work, (command, directory, path, int(step or 0), port), nprocs=2)
    print(torch.__version__)
