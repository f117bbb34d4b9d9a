#!/usr/bin/env python3
"""Tests of the digits example, with real processes and real signals. Standard library only:

    python3 examples/digits/test_train.py
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

STEPS_PER_EPOCH = 16
SMALL = ("--samples", "500", "--hidden", "16", "--learning-rate", "0.01")
OURS = ("RANK", "WORLD_SIZE", "CHECKPOINT_", "RESUME_", "HYPERPARAM_", "MASTER_", "TRAINYARD_")


class Worker:
    """One process of a job."""

    script = Path(__file__).with_name("train.py")

    def __init__(self, rank: int, world_size: int, port: int, directory: str | None, arguments: tuple, env: dict):
        clean = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        place = {"RANK": str(rank), "WORLD_SIZE": str(world_size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        if directory:
            place["CHECKPOINT_DIR"] = directory
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, str(self.script), *arguments],
            env={**clean, **place, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        # A hanging worker is a failed test, not a hanging one.
        self.watchdog = threading.Timer(100, self.process.kill)
        self.watchdog.daemon = True
        self.watchdog.start()

    def read_until(self, text: str) -> None:
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if text in line:
                return
        raise AssertionError(f"{text!r} never came:\n{self.said()}")

    def finish(self) -> int:
        if not self.process.stdout.closed:
            self.lines += [line.rstrip("\n") for line in self.process.stdout]
            self.process.stdout.close()
        self.watchdog.cancel()
        return self.process.wait()

    def said(self) -> str:
        return "\n".join(self.lines)

    def progress(self) -> list[dict]:
        return [json.loads(line) for line in self.lines if line.startswith("{")]


class Example(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = temporary.name

    def start(self, world_size: int, *arguments: str, directory: str | None = None, **env: str) -> list[Worker]:
        port = free_port()
        workers = [Worker(rank, world_size, port, directory, arguments, env) for rank in range(world_size)]
        for worker in workers:
            self.addCleanup(worker.finish)
            self.addCleanup(worker.process.kill)
        return workers

    def run_to_end(self, world_size: int, *arguments: str, directory: str | None = None, **env: str) -> Worker:
        """All workers end well; returns worker 0."""
        workers = self.start(world_size, *arguments, directory=directory, **env)
        for worker in workers:
            self.assertEqual(worker.finish(), 0, worker.said())
        return workers[0]

    def saved(self) -> list[str]:
        return sorted(path.name for path in Path(self.directory).iterdir())


class Learning(Example):
    def test_one_process_learns(self) -> None:
        worker = self.run_to_end(1, "--samples", "3000", "--hidden", "24", "--learning-rate", "0.01", "--epochs", "3")
        progress = worker.progress()
        ends = [line for line in progress if line["step"] == line["epoch"] * 94]
        self.assertEqual([line["epoch"] for line in ends], [1, 2, 3], progress)
        self.assertLess(ends[1]["loss"], ends[0]["loss"])
        self.assertLess(ends[2]["loss"], ends[1]["loss"])
        self.assertGreater(ends[2]["accuracy"], 0.9)
        self.assertEqual((ends[2]["epochs"], ends[2]["steps"]), (3, 282))
        self.assertTrue(all({"epoch", "epochs", "step", "steps", "loss"} <= line.keys() for line in progress))

    def test_two_and_three_processes_learn_what_one_does(self) -> None:
        alone = self.run_to_end(1, *SMALL, "--epochs", "2").progress()
        for world_size in (2, 3):
            together = self.run_to_end(world_size, *SMALL, "--epochs", "2").progress()
            self.assertEqual(len(together), len(alone))
            for mine, theirs in zip(alone, together):
                self.assertEqual(mine["step"], theirs["step"])
                self.assertAlmostEqual(mine["loss"], theirs["loss"], delta=0.0002)

    def test_sgd_learns_too_and_hyperparameters_come_from_the_environment(self) -> None:
        worker = self.run_to_end(
            1, "--samples", "1000", HYPERPARAM_OPTIMIZER="sgd", HYPERPARAM_LEARNING_RATE="0.1", HYPERPARAM_EPOCHS="2"
        )
        self.assertIn("sgd", worker.said())
        first, last = worker.progress()[0], worker.progress()[-1]
        self.assertEqual(last["epochs"], 2)
        self.assertLess(last["loss"], first["loss"] * 0.8)


class Recovery(Example):
    """Whatever happens on the way, the end is that of a run to which nothing happened."""

    undisturbed: list[dict] = []
    suffix = ".json"

    def expected(self, epoch: int) -> tuple:
        """Step, loss and accuracy of an undisturbed run at the end of an epoch. Made once, longer when needed."""
        if len(self.undisturbed) < epoch:
            type(self).undisturbed = ends(self.run_to_end(2, *SMALL, "--epochs", str(max(epoch, 6))))
        return outcome(self.undisturbed[epoch - 1])

    def resume(self, *arguments: str, **env: str) -> Worker:
        """Goes on for some epochs, until all that was lost has been made up for, and compares."""
        saved = (re.match(r"checkpoint-epoch-(\d+)", name) for name in self.saved())
        epochs = max(int(name.group(1)) for name in saved if name) + 2
        worker = self.run_to_end(2, *SMALL, "--epochs", str(epochs), *arguments, directory=self.directory, **env)
        self.assertEqual(ends(worker)[-1]["epoch"], epochs, worker.said())
        for line in ends(worker):
            self.assertEqual(outcome(line), self.expected(line["epoch"]), worker.said())
        return worker

    def in_third_epoch(self) -> list[Worker]:
        """Two workers that would go on for a long time."""
        workers = self.start(2, *SMALL, "--epochs", "100000", directory=self.directory)
        workers[0].read_until('"epoch": 3')
        return workers

    def assert_resumes_after(self, step: str) -> None:
        said = self.resume().said()
        at_the_end_of_an_epoch = f"resuming from epoch {int(step) / STEPS_PER_EPOCH:g}\n"
        self.assertTrue(f", step {step}\n" in said or at_the_end_of_an_epoch in said, said)

    def test_kill_of_worker_0(self) -> None:
        workers = self.in_third_epoch()
        workers[0].process.kill()
        self.assertEqual([worker.finish() for worker in workers], [-signal.SIGKILL, 1])
        self.assertRegex(workers[1].said(), "lost (worker 0|a worker)")
        self.assertIn("resuming from epoch", self.resume().said())

    def test_kill_of_worker_1_keeps_even_the_last_step(self) -> None:
        workers = self.in_third_epoch()
        workers[1].process.kill()
        self.assertEqual([worker.finish() for worker in workers], [1, -signal.SIGKILL])
        self.assertRegex(workers[0].said(), "lost (worker 1|a worker)")
        self.assert_resumes_after(last_step(workers[0]))

    def test_sigterm_to_worker_0_saves(self) -> None:
        workers = self.in_third_epoch()
        workers[0].process.terminate()
        self.assertEqual([worker.finish() for worker in workers], [143, 1])
        self.assert_resumes_after(last_step(workers[0]))

    def test_sigterm_to_all_saves(self) -> None:
        workers = self.in_third_epoch()
        # The other one first: worker 0 may find it gone before its own signal comes.
        for worker in reversed(workers):
            worker.process.terminate()
        self.assertEqual(workers[1].finish(), 143)
        self.assertIn(workers[0].finish(), (143, 1), workers[0].said())
        self.assert_resumes_after(last_step(workers[0]))

    def test_sigterm_while_waiting_for_the_others_ends_at_once(self) -> None:
        worker = Worker(0, 2, free_port(), self.directory, SMALL, {})
        worker.read_until("rank 0 of 2")
        worker.process.terminate()
        self.assertIn(worker.finish(), (143, -signal.SIGTERM), worker.said())

    def test_a_breakdown_on_request_happens_once(self) -> None:
        fail = ("--fail-at-epoch", "2", "--fail-rank", "1")
        workers = self.start(2, *SMALL, "--epochs", "3", *fail, directory=self.directory)
        self.assertEqual([worker.finish() for worker in workers], [1, 3])
        self.assertIn("resuming from epoch 1, step", self.resume(*fail).said())

    def test_damaged_checkpoints_are_passed_over(self) -> None:
        self.run_to_end(2, *SMALL, "--epochs", "3", directory=self.directory)
        cut, changed = (Path(self.directory, f"checkpoint-epoch-{epoch}{self.suffix}") for epoch in (3, 2))
        cut.write_bytes(cut.read_bytes()[:1000])
        content = changed.read_bytes()
        middle = len(content) // 2
        wrong = bytes(byte ^ 1 for byte in content[middle : middle + 300])
        changed.write_bytes(content[:middle] + wrong + content[middle + 300 :])
        said = self.resume().said()
        self.assertIn(f"skipping checkpoint {cut}", said)
        self.assertIn(f"skipping checkpoint {changed}", said)
        self.assertIn("resuming from epoch 1", said)

    def test_the_checkpoint_that_is_named_is_taken(self) -> None:
        self.run_to_end(2, *SMALL, "--epochs", "3", directory=self.directory)
        named = str(Path(self.directory, "checkpoint-epoch-2" + self.suffix))
        self.assertIn("resuming from epoch 2", self.resume(RESUME_FROM_CHECKPOINT=named).said())


class Checkpoints(Example):
    def test_the_last_three_are_kept_and_a_finished_run_has_nothing_to_do(self) -> None:
        first = self.run_to_end(1, *SMALL, "--epochs", "5", directory=self.directory)
        self.assertEqual(self.saved(), [f"checkpoint-epoch-{epoch}.json" for epoch in (3, 4, 5)])
        again = self.run_to_end(1, *SMALL, "--epochs", "5", directory=self.directory)
        self.assertIn("nothing left to do", again.said())
        self.assertEqual(again.progress(), first.progress()[-1:])

    def test_frequency(self) -> None:
        self.run_to_end(1, *SMALL, "--epochs", "5", directory=self.directory, CHECKPOINT_FREQUENCY="2")
        self.assertEqual(self.saved(), [f"checkpoint-epoch-{epoch}.json" for epoch in (2, 4, 5)])

    def test_another_network_does_not_go_on_from_it(self) -> None:
        self.run_to_end(1, *SMALL, "--epochs", "1", directory=self.directory)
        (worker,) = self.start(1, *SMALL, "--hidden", "8", directory=self.directory)
        self.assertEqual(worker.finish(), 1)
        self.assertIn("the checkpoint was made with --hidden 16, not 8", worker.said())


def ends(worker: Worker) -> list[dict]:
    """What was reported at the ends of epochs."""
    return [line for line in worker.progress() if line["step"] == line["epoch"] * STEPS_PER_EPOCH]


def outcome(line: dict) -> tuple:
    return line["step"], line["loss"], line["accuracy"]


def last_step(worker: Worker) -> str:
    return re.search(r"ending after step (\d+)", worker.said()).group(1)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


if __name__ == "__main__":
    unittest.main()
