"""Accelerate with automatic names: checkpoints/checkpoint_0, _1 and _2; a run that goes on saves _3."""

import sys

import accelerate
import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration


def prepared(directory, iteration=0):
    config = ProjectConfiguration(
        project_dir=directory, automatic_checkpoint_naming=True, iteration=iteration, total_limit=None)
    accelerator = Accelerator(cpu=True, project_config=config)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    data = torch.utils.data.DataLoader(torch.ones(8, 8), batch_size=4)
    model, optimizer, scheduler, data = accelerator.prepare(model, optimizer, scheduler, data)
    return accelerator, model, optimizer, scheduler


def save(directory):
    accelerator, model, optimizer, scheduler = prepared(directory)
    for number in range(3):
        with torch.no_grad():
            accelerator.unwrap_model(model).bias.fill_(number)
        model(torch.ones(8)).sum().backward()
        optimizer.step()
        with torch.no_grad():
            accelerator.unwrap_model(model).bias.fill_(number)
        accelerator.save_state()


def resume(directory, path, step):
    accelerator, model, optimizer, scheduler = prepared(directory, step + 1)
    accelerator.load_state(path)
    assert accelerator.unwrap_model(model).bias[0].item() == step, (step, accelerator.unwrap_model(model).bias)
    accelerator.save_state()


if __name__ == "__main__":
    command, directory, *rest = sys.argv[1:]
    if command == "save":
        save(directory)
    else:
        resume(directory, rest[0], int(rest[1]))
    print(accelerate.__version__, torch.__version__)
