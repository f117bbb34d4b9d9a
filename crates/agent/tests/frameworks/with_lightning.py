"""Lightning: epoch=…-step=….ckpt after steps 2, 4 and 6, and last.ckpt; a run that goes on saves two steps more."""

import os
import sys

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint


class Small(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def training_step(self, batch, index):
        return self.layer(batch).sum()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


def fit(directory, steps, path=None):
    keep = ModelCheckpoint(directory, every_n_train_steps=2, save_top_k=-1, save_last=os.environ.get("SAVE_LAST", "yes") != "link" or "link")
    trainer = lightning.Trainer(
        max_steps=steps, callbacks=[keep], accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False)
    seen = []

    class Watch(lightning.Callback):
        def on_train_start(self, trainer, module):
            seen.append(trainer.global_step)

    trainer.callbacks.append(Watch())
    data = torch.utils.data.DataLoader(torch.ones(16, 8), batch_size=4)
    trainer.fit(Small(), data, ckpt_path=path)
    return seen[0]


if __name__ == "__main__":
    command, directory, *rest = sys.argv[1:]
    if command == "save":
        fit(directory, 6)
    else:
        step = int(rest[1])
        assert fit(directory, step + 2, rest[0]) == step
    print(lightning.__version__, torch.__version__)
