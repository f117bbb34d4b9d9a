"""The Trainer of transformers, with sharded weights.

Steps 2, 4 and 6 are saved; a run that goes on saves 8 and removes what is beyond its own limit."""

import sys

import torch
import transformers
from transformers import Trainer, TrainingArguments


class Small(transformers.PreTrainedModel):
    config_class = transformers.PretrainedConfig

    def __init__(self, config):
        super().__init__(config)
        self.one, self.two = torch.nn.Linear(32, 32), torch.nn.Linear(32, 32)
        self.post_init()

    def forward(self, x, labels=None):
        out = self.two(self.one(x))
        return {"loss": ((out - labels) ** 2).mean(), "logits": out}


class Sharding(Trainer):
    def _save(self, output_dir=None, state_dict=None):
        super()._save(output_dir, state_dict)
        import glob, os
        for old in glob.glob(os.path.join(output_dir, "model*.safetensors")):
            os.remove(old)
        self.model.save_pretrained(output_dir, max_shard_size="6KB")


def trainer(directory, steps, **more):
    data = [{"x": torch.ones(32), "labels": torch.zeros(32)} for _ in range(16)]
    arguments = TrainingArguments(
        directory, max_steps=steps, save_steps=2, per_device_train_batch_size=4, report_to=[], use_cpu=True,
        logging_steps=1, disable_tqdm=True, **more)
    return Sharding(Small(transformers.PretrainedConfig()), arguments, train_dataset=data)


def save(directory):
    trainer(directory, 6).train()


def resume(directory, path, step):
    again = trainer(directory, step + 2, save_total_limit=2)
    seen = []

    class Watch(transformers.TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            seen.append(state.global_step)

    again.add_callback(Watch())
    again.train(resume_from_checkpoint=path)
    assert seen[0] == step, seen
    # The Trainer's own search for the newest finds the same one, or the one just saved.
    newest = transformers.trainer_utils.get_last_checkpoint(directory)
    assert newest.endswith(f"checkpoint-{step + 2}"), newest


if __name__ == "__main__":
    command, directory, *rest = sys.argv[1:]
    if command == "save":
        save(directory)
    else:
        resume(directory, rest[0], int(rest[1]))
    print(transformers.__version__, torch.__version__)
