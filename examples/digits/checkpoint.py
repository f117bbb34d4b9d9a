"""Checkpoints: one JSON file each, whole or not there at all.

checkpoint-epoch-3.json was saved when three epochs were done, checkpoint-epoch-3-step-610.json somewhere in the fourth.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import asdict
from pathlib import Path

from group import say
from state import State

KEEP = 3
NAME = re.compile(r"checkpoint-epoch-(\d+)(?:-step-(\d+))?\.json")


def save(state: State, name: str, directory: Path) -> None:
    """Writes under another name, makes sure that it is on the disk, and only then gives it its name."""
    content = asdict(state)
    unfinished = directory / ".checkpoint.tmp"
    with open(unfinished, "w", encoding="ascii") as file:
        json.dump({"sha256": checksum(content), "state": content}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, directory / name)
    sync_names(directory)
    for old in newest_first(directory)[KEEP:]:
        old.unlink()


def checksum(content: dict) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def sync_names(directory: Path) -> None:
    """The new name is an entry of the directory, which has to reach the disk, too."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def newest_first(directory: Path) -> list[Path]:
    """All checkpoints that are there, good or not."""
    found = []
    for path in directory.iterdir():
        name = NAME.fullmatch(path.name)
        if name:
            epoch, step = name.groups(default="0")
            found.append((int(epoch), int(step), path))
    return [path for _, _, path in sorted(found, reverse=True)]


def find(directory: Path | None) -> State | None:
    """The one that we are told to use, else the newest good one."""
    told = os.environ.get("RESUME_FROM_CHECKPOINT")
    candidates = [Path(told)] if told else []
    candidates += newest_first(directory) if directory else []
    for path in candidates:
        try:
            return load(path)
        except (OSError, ValueError) as error:
            say(f"skipping checkpoint {path}: {error}")
    return None


def load(path: Path) -> State:
    """Raises OSError or ValueError for a file that cannot be used."""
    document = json.loads(path.read_text(encoding="ascii"))
    try:
        content = document["state"]
        if document["sha256"] != checksum(content):
            raise ValueError("the checksum is wrong")
        return State(**content)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a checkpoint of this program: {error}") from error
