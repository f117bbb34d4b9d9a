#!/usr/bin/env python3
"""Several processes teach one small network to read digits. Needs Python 3.9 or newer and nothing else.

    python3 train.py                       # alone
    trainyard run examples/digits/job.yaml # with two workers

How the work is shared: every worker has a copy of the network. In each step all look at the same batch of pictures,
but each only at its part of it, and finds out how the weights should change (the gradient). The gradients are added
up over TCP and everybody takes the same step. So the copies stay equal, and N workers learn what one would have.

What the surroundings say, in environment variables:

    RANK, WORLD_SIZE            which worker this is, of how many
    MASTER_ADDR, MASTER_PORT    where worker 0 listens
    CHECKPOINT_DIR              where to save (nothing is saved without it)
    CHECKPOINT_FREQUENCY        every how many epochs
    RESUME_FROM_CHECKPOINT      which file to go on from, else the newest good one in CHECKPOINT_DIR
    HYPERPARAM_EPOCHS, ...      any of the options below; the command line wins

The other files: digits.py makes the pictures, network.py is the network, state.py what is learned and how,
checkpoint.py saves it, group.py adds up the gradients.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Callable

import checkpoint
from digits import make_digits
from group import RANK, WORLD_SIZE, Group, PeerLost, say
from network import count_right, gradient_and_loss
from state import OPTIMIZERS, State, new_state


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
    parser = argparse.ArgumentParser(description="Data-parallel training of a small network that reads digits.")

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


class Training:
    def __init__(self, options: argparse.Namespace, group: Group, state: State) -> None:
        self.options, self.group, self.state = options, group, state
        self.learn_from = make_digits(options.samples, "to learn from")
        self.never_seen = make_digits(1000, "never seen")
        self.steps_per_epoch = math.ceil(options.samples / options.batch_size)
        self.steps = options.epochs * self.steps_per_epoch
        self.directory = Path(options.checkpoint_dir) if options.checkpoint_dir else None
        self.stop_signal: int | None = None

    def run(self) -> None:
        frequency = int(os.environ.get("CHECKPOINT_FREQUENCY", "1"))
        while self.state.epoch < self.options.epochs:
            self.run_epoch(self.state.epoch + 1)
            if self.state.epoch % frequency == 0 or self.state.epoch == self.options.epochs:
                self.save()

    def run_epoch(self, epoch: int) -> None:
        """From wherever the state is in this epoch to its end."""
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
                self.report(epoch, self.state.loss_sum / inside)
        self.state.accuracy = self.measure()
        self.state.loss, self.state.loss_sum = self.state.loss_sum / self.steps_per_epoch, 0.0
        self.state.epoch = epoch
        self.report(epoch, self.state.loss)

    def steps_inside(self) -> int:
        """Steps done in the epoch that is under way."""
        return self.state.step - self.state.epoch * self.steps_per_epoch

    def make_step(self, batch: list[int]) -> None:
        """One step of everybody. Until the last lines the state is that of the step before."""
        mine = [self.learn_from[index] for index in batch[RANK::WORLD_SIZE]]
        sums = self.group.sum(gradient_and_loss(self.state.weights, mine, self.options.hidden))
        *gradient, loss = [value / len(batch) for value in sums]
        OPTIMIZERS[self.options.optimizer](self.state, gradient, self.options.learning_rate)
        self.state.loss_sum += loss
        self.state.step += 1
        if not math.isfinite(loss):
            sys.exit(f"rank {RANK}: the loss is {loss} in step {self.state.step}; try a smaller --learning-rate")

    def measure(self) -> float:
        """The part of the unseen pictures that the network reads right. Each worker looks at some of them."""
        mine = self.never_seen[RANK::WORLD_SIZE]
        (right,) = self.group.sum([float(count_right(self.state.weights, mine, self.options.hidden))])
        return right / len(self.never_seen)

    def report(self, epoch: int, loss: float) -> None:
        """The line that Trainyard reads progress from."""
        if RANK != 0:
            return
        step = min(self.state.step, self.steps)
        line = {"epoch": epoch, "epochs": self.options.epochs, "step": step, "steps": self.steps}
        line["loss"] = round(loss, 4)
        if self.state.accuracy is not None:
            line["accuracy"] = round(self.state.accuracy, 4)
        print(json.dumps(line), flush=True)

    def save(self) -> None:
        """Worker 0 saves for all: their states are the same."""
        if RANK != 0 or not self.directory:
            return
        name = f"checkpoint-epoch-{self.state.epoch}"
        if self.steps_inside() > 0:
            name += f"-step-{self.state.step}"
        try:
            checkpoint.save(self.state, name + ".json", self.directory)
        except OSError as error:
            sys.exit(f"cannot save a checkpoint in {self.directory}: {error}")

    def remember_signal(self, number: int, _: object) -> None:
        self.stop_signal = number

    def stop_if_asked(self) -> None:
        if self.stop_signal:
            self.save()
            say(f"ending after step {self.state.step}, as asked to by {signal.Signals(self.stop_signal).name}")
            sys.exit(128 + self.stop_signal)

    def break_down(self, epoch: int) -> None:
        """On request, and only once: a file remembers it."""
        if (epoch, RANK) != (self.options.fail_at_epoch, self.options.fail_rank):
            return
        try:
            open(self.directory / "failed-once", "x").close()
        except FileExistsError:
            return
        say(f"breaking down on purpose in epoch {epoch}")
        os._exit(3)


def start_state(options: argparse.Namespace, group: Group) -> State:
    """Worker 0 looks for a checkpoint and shares what it finds, so that all go on from the same one."""
    shape = {name: getattr(options, name) for name in ("batch_size", "hidden", "optimizer", "samples", "seed")}
    if RANK == 0:
        state = found_state(options.checkpoint_dir) or new_state(shape)
        check_shape(state, shape, "the checkpoint was made")
        group.share(json.dumps(asdict(state)).encode())
    else:
        state = State(**json.loads(group.share(b"")))
        check_shape(state, shape, "worker 0 was started")
    return state


def found_state(directory: str | None) -> State | None:
    if directory is None:
        say("CHECKPOINT_DIR is not set: nothing will be saved")
        return checkpoint.find(None)
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
        return checkpoint.find(Path(directory))
    except OSError as error:
        sys.exit(f"the checkpoint directory cannot be used: {error}")


def check_shape(state: State, shape: dict, what: str) -> None:
    for name, value in shape.items():
        if state.shape.get(name) != value:
            flag = "--" + name.replace("_", "-")
            sys.exit(
                f"rank {RANK}: {what} with {flag} {state.shape.get(name)}, not {value}: "
                "use the same value, or another checkpoint directory"
            )


def on_signal(handler: Callable) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)


def main() -> None:
    options = read_options()
    # Until there is something to save, and for all but worker 0, a signal ends the process at once.
    on_signal(lambda number, _: sys.exit(128 + number))
    print(f"rank {RANK} of {WORLD_SIZE}", flush=True)
    try:
        group = Group()
        training = Training(options, group, start_state(options, group))
    except PeerLost as error:
        sys.exit(f"rank {RANK}: {error}")

    state = training.state
    if state.step:
        say(f"resuming from epoch {state.epoch}" + (f", step {state.step}" if training.steps_inside() else ""))
    elif RANK == 0:
        say(f"learning from {options.samples} pictures, {len(state.weights)} weights, {options.optimizer}")
    if RANK == 0:
        if state.epoch >= options.epochs:
            say(f"nothing left to do: {options.epochs} epochs are done")
            training.report(options.epochs, state.loss)
        on_signal(training.remember_signal)
    try:
        training.run()
    except PeerLost as error:
        # A signal to all may have reached the others first. What all had agreed on is worth keeping.
        if training.steps_inside() > 0:
            training.save()
        print(f"rank {RANK}: {error}; ending after step {state.step}", file=sys.stderr, flush=True)
        sys.exit(128 + training.stop_signal if training.stop_signal else 1)


if __name__ == "__main__":
    main()
