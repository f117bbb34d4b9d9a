#!/usr/bin/env python3
"""The digits of ../digits, learned with PyTorch DistributedDataParallel: gloo on CPUs, nccl on GPUs.

    python3 train.py                             # alone
    trainyard run examples/pytorch-ddp/job.yaml  # with two workers

It reads the same environment variables as ../digits/train.py, has the same options and prints the same lines, so the
two can be read side by side: what is written out by hand there is one call of PyTorch here. Needs torch 1.13 or newer.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import signal
import sys
import traceback
import zipfile
from pathlib import Path
from typing import Callable, NoReturn

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

sys.path.append(str(Path(__file__).resolve().parent.parent / "digits"))
from digits import CLASSES, PIXELS, Digit, make_digits  # noqa: E402

RANK = int(os.environ.get("RANK", "0"))
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", "1"))
OPTIMIZERS = {
    "sgd": lambda weights, rate: torch.optim.SGD(weights, lr=rate, momentum=0.9),
    "adam": lambda weights, rate: torch.optim.Adam(weights, lr=rate),
}


def say(text: str) -> None:
    """For people. Worker 0 speaks for all; the others say who they are."""
    print(text if RANK == 0 else f"rank {RANK}: {text}", flush=True)


# Options


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def optimizer_name(text: str) -> str:
    if text not in OPTIMIZERS:
        raise ValueError(text)
    return text


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="PyTorch DDP training of a small network that reads digits.")

    def option(name: str, usual: str, kind: Callable, meaning: str) -> None:
        # A default that is a string is checked like the command line is, with the same error message.
        default = os.environ.get("HYPERPARAM_" + name.upper().replace("-", "_"), usual)
        parser.add_argument("--" + name, default=default, type=kind, help=f"{meaning} ({default})")

    option("epochs", "10", positive, "how often to go through all pictures")
    option("batch-size", "32", positive, "pictures per step, over all workers")
    option("hidden", "48", positive, "neurons between the pixels and the answer")
    option("samples", "6000", positive, "pictures to learn from")
    option("optimizer", "adam", optimizer_name, "sgd or adam")
    option("learning-rate", "0.003", float, "size of a step")
    option("seed", "1", int, "the same seed gives the same result")
    parser.add_argument("--checkpoint-dir", default=os.environ.get("CHECKPOINT_DIR"), help="instead of CHECKPOINT_DIR")
    parser.add_argument("--fail-at-epoch", type=positive, help="break down once, half-way through this epoch")
    parser.add_argument("--fail-rank", type=int, default=0, help="which worker breaks down (0)")
    # A job with `model` and `dataset` passes these two. This program has one of each.
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--dataset", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fail_at_epoch and not options.checkpoint_dir:
        parser.error("--fail-at-epoch needs a checkpoint directory, to remember that it has failed")
    if not 0 <= options.fail_rank < WORLD_SIZE:
        parser.error(f"--fail-rank: the workers are 0 to {WORLD_SIZE - 1}")
    return options


# Checkpoints: checkpoint-epoch-3.pt was saved when three epochs were done, checkpoint-epoch-3-step-610.pt somewhere in
# the fourth. checkpoint-latest.pt is a link to the newest.

KEEP = 3
NAME = re.compile(r"checkpoint-epoch-(\d+)(?:-step-(\d+))?\.pt")


def save_file(content: dict, name: str, directory: Path) -> None:
    """torch.save alone can leave half a file behind. Under another name that does no harm."""
    unfinished = directory / ".checkpoint.tmp"
    with open(unfinished, "wb") as file:
        torch.save(content, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, directory / name)
    link = directory / ".latest.tmp"
    link.unlink(missing_ok=True)
    link.symlink_to(name)
    os.replace(link, directory / "checkpoint-latest.pt")
    for old in newest_first(directory)[KEEP:]:
        old.unlink()


def newest_first(directory: Path) -> list[Path]:
    """All checkpoints that are there, good or not."""
    found = []
    for path in directory.iterdir():
        name = NAME.fullmatch(path.name)
        if name:
            epoch, step = name.groups(default="0")
            found.append((int(epoch), int(step), path))
    return [path for _, _, path in sorted(found, reverse=True)]


def find_file(directory: Path | None) -> str | None:
    """The checkpoint that we are told to use, else the newest one that can be read."""
    told = os.environ.get("RESUME_FROM_CHECKPOINT")
    candidates = [Path(told)] if told else []
    candidates += newest_first(directory) if directory else []
    for path in candidates:
        try:
            check_file(path)
            return str(path)
        except Exception as error:  # torch.load fails in many ways
            say(f"skipping checkpoint {path}: {str(error).splitlines()[0]}")
    return None


def check_file(path: Path) -> None:
    """Raises something if the file cannot be used. torch.load reads the archive, but does not look at its checksums."""
    load_file(path)
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
    if damaged:
        raise ValueError(f"the checksum of {damaged} is wrong")


def load_file(path: str | Path) -> dict:
    # weights_only: a checkpoint is data, and must not be able to run code.
    return torch.load(path, map_location="cpu", weights_only=True)


# Training


class StepFailed(Exception):
    """A step of all workers could not be made, as a rule because one of them is gone."""


class Training:
    def __init__(self, options: argparse.Namespace, device: torch.device) -> None:
        self.options, self.device = options, device
        self.shape = {name: getattr(options, name) for name in ("batch_size", "hidden", "optimizer", "samples", "seed")}
        self.pixels, self.labels = tensors(make_digits(options.samples, "to learn from"), device)
        self.unseen_pixels, self.unseen_labels = tensors(make_digits(1000, "never seen"), device)
        self.steps_per_epoch = math.ceil(options.samples / options.batch_size)
        self.steps = options.epochs * self.steps_per_epoch
        self.directory = Path(options.checkpoint_dir) if options.checkpoint_dir else None
        self.stop_signal: int | None = None

        torch.manual_seed(options.seed)
        self.network = nn.Sequential(
            nn.Linear(PIXELS, options.hidden), nn.ReLU(), nn.Linear(options.hidden, CLASSES)
        ).to(device)
        self.optimizer = OPTIMIZERS[options.optimizer](self.network.parameters(), options.learning_rate)
        self.epoch = self.step = 0  # done
        self.loss_sum = 0.0  # over the steps of the epoch that is under way
        self.loss: float | None = None
        self.accuracy: float | None = None
        self.resume()
        # From here on the workers' gradients are averaged in every backward pass.
        self.parallel = DistributedDataParallel(self.network)

    def run(self) -> None:
        frequency = int(os.environ.get("CHECKPOINT_FREQUENCY", "1"))
        while self.epoch < self.options.epochs:
            self.run_epoch(self.epoch + 1)
            if self.epoch % frequency == 0 or self.epoch == self.options.epochs:
                self.save()

    def run_epoch(self, epoch: int) -> None:
        """From wherever we are in this epoch to its end."""
        order = list(range(self.options.samples))
        random.Random(f"order {self.options.seed} {epoch}").shuffle(order)
        report_every = math.ceil(self.steps_per_epoch / 4)
        while (inside := self.steps_inside()) < self.steps_per_epoch:
            start = inside * self.options.batch_size
            self.make_step(order[start : start + self.options.batch_size])
            self.stop_if_asked()
            inside += 1
            if inside == max(1, self.steps_per_epoch // 2):
                self.break_down(epoch)
            if inside % report_every == 0 and inside < self.steps_per_epoch:
                self.report(epoch, self.loss_sum / inside)
        self.accuracy = self.measure()
        self.loss, self.loss_sum = self.loss_sum / self.steps_per_epoch, 0.0
        self.epoch = epoch
        self.report(epoch, self.loss)

    def steps_inside(self) -> int:
        """Steps done in the epoch that is under way."""
        return self.step - self.epoch * self.steps_per_epoch

    def make_step(self, batch: list[int]) -> None:
        """One step of everybody. Until the optimizer's turn, all is as after the step before."""
        mine = batch[RANK::WORLD_SIZE]
        self.optimizer.zero_grad()
        loss = cross_entropy(self.parallel(self.pixels[mine]), self.labels[mine], reduction="sum") / len(batch)
        try:
            # DDP takes the mean over the workers, and the parts of the last batch may differ: so the sum is wanted.
            (loss * WORLD_SIZE).backward()
        except RuntimeError as error:
            raise StepFailed(error) from error
        total = self.add_up(loss.item())
        self.optimizer.step()
        self.loss_sum += total
        self.step += 1
        if not math.isfinite(total):
            leave(1, f"the loss is {total} in step {self.step}; try a smaller --learning-rate")

    def add_up(self, value: float) -> float:
        total = torch.tensor(value, dtype=torch.float64, device=self.device)
        try:
            dist.all_reduce(total)
        except RuntimeError as error:
            raise StepFailed(error) from error
        return total.item()

    def measure(self) -> float:
        """The part of the unseen pictures that the network reads right. Each worker looks at some of them."""
        with torch.no_grad():
            answers = self.network(self.unseen_pixels[RANK::WORLD_SIZE]).argmax(dim=1)
        right = (answers == self.unseen_labels[RANK::WORLD_SIZE]).sum().item()
        return self.add_up(right) / len(self.unseen_labels)

    def report(self, epoch: int, loss: float) -> None:
        """The line that Trainyard reads progress from."""
        if RANK != 0:
            return
        step = min(self.step, self.steps)
        line = {"epoch": epoch, "epochs": self.options.epochs, "step": step, "steps": self.steps}
        line["loss"] = round(loss, 4)
        if self.accuracy is not None:
            line["accuracy"] = round(self.accuracy, 4)
        print(json.dumps(line), flush=True)

    def save(self) -> None:
        """Worker 0 saves for all: their states are the same."""
        if RANK != 0 or not self.directory:
            return
        name = f"checkpoint-epoch-{self.epoch}"
        if self.steps_inside() > 0:
            name += f"-step-{self.step}"
        content = {
            "shape": self.shape,
            "epoch": self.epoch,
            "step": self.step,
            # As text: torch 1.13 reads no bare floats with weights_only.
            "metrics": json.dumps([self.loss_sum, self.loss, self.accuracy]),
            "model_state_dict": self.network.state_dict(),
            # Without its settings, such as the learning rate: those of the new run count.
            "optimizer_state": self.optimizer.state_dict()["state"],
        }
        try:
            save_file(content, name + ".pt", self.directory)
        except (OSError, RuntimeError) as error:
            leave(1, f"cannot save a checkpoint in {self.directory}: {error}")

    def resume(self) -> None:
        """Worker 0 chooses the checkpoint, so that all load the same one."""
        choice = [None]
        if RANK == 0:
            if self.directory:
                self.directory.mkdir(parents=True, exist_ok=True)
            else:
                say("CHECKPOINT_DIR is not set: nothing will be saved")
            choice = [find_file(self.directory)]
        dist.broadcast_object_list(choice, src=0)
        if choice[0] is None:
            return
        content = load_file(choice[0])
        for name, value in self.shape.items():
            if content["shape"].get(name) != value:
                flag = "--" + name.replace("_", "-")
                leave(
                    1,
                    f"the checkpoint was made with {flag} {content['shape'].get(name)}, not {value}: "
                    "use the same value, or another checkpoint directory",
                )
        self.epoch, self.step = content["epoch"], content["step"]
        self.loss_sum, self.loss, self.accuracy = json.loads(content["metrics"])
        self.network.load_state_dict(content["model_state_dict"])
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": content["optimizer_state"]})
        say(f"resuming from epoch {self.epoch}" + (f", step {self.step}" if self.steps_inside() else ""))

    def remember_signal(self, number: int, _: object) -> None:
        self.stop_signal = number

    def stop_if_asked(self) -> None:
        if self.stop_signal:
            self.save()
            say(f"ending after step {self.step}, as asked to by {signal.Signals(self.stop_signal).name}")
            leave(128 + self.stop_signal)

    def break_down(self, epoch: int) -> None:
        """On request, and only once: a file remembers it."""
        if (epoch, RANK) != (self.options.fail_at_epoch, self.options.fail_rank):
            return
        try:
            open(self.directory / "failed-once", "x").close()
        except FileExistsError:
            return
        say(f"breaking down on purpose in epoch {epoch}")
        leave(3)


def tensors(digits: list[Digit], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    pixels = torch.tensor([digit.pixels for digit in digits], device=device)
    return pixels, torch.tensor([digit.label for digit in digits], device=device)


def join() -> torch.device:
    """Waits until all workers are there; says where to compute."""
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if gpu else "gloo", rank=RANK, world_size=WORLD_SIZE)
    if not gpu:
        # The network is so small that threads only get in each other's way.
        torch.set_num_threads(1)
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def leave(code: int, reason: str = "") -> NoReturn:
    """Ends at once. Taking the group apart in order could wait for ever: for workers that are gone, and with gloo in
    torch 1.13 even for a thread of its own."""
    if reason:
        print(f"rank {RANK}: {reason}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    options = read_options()
    print(f"rank {RANK} of {WORLD_SIZE}", flush=True)
    device = join()
    training = Training(options, device)
    if RANK == 0:
        if training.step == 0:
            say(f"learning from {options.samples} pictures on {device}, {options.optimizer}")
        if training.epoch >= options.epochs:
            say(f"nothing left to do: {options.epochs} epochs are done")
            training.report(options.epochs, training.loss)
    # Worker 0 ends after the step that it is in; there is nothing that the others would have to finish.
    ending = training.remember_signal if RANK == 0 else lambda number, _: leave(128 + number)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ending)
    try:
        training.run()
    except StepFailed as error:
        # A signal to all may have reached the others first. What all had agreed on is worth keeping.
        if training.steps_inside() > 0:
            training.save()
        reason = str(error).splitlines()[0]
        code = 128 + training.stop_signal if training.stop_signal else 1
        leave(code, f"lost a worker: {reason}; ending after step {training.step}")
    leave(0)


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        traceback.print_exc()
        leave(1, str(error))
