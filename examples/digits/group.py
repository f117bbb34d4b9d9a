"""The group of workers: adds up everybody's numbers over TCP.

Worker 0 has a connection to each of the others. (Large models use a ring, in which nobody has to carry everything; for
a few thousand weights this is as fast, and easier to follow.)
"""

from __future__ import annotations

import array
import errno
import os
import socket
import struct
import sys
import time
from operator import add

RANK = int(os.environ.get("RANK", "0"))
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", "1"))
MASTER_ADDR = os.environ.get("MASTER_ADDR", "127.0.0.1")
MASTER_PORT = int(os.environ.get("MASTER_PORT", "29500"))
# How often the job has been started: a straggler of an earlier start must not join this one.
ATTEMPT = int(os.environ.get("TRAINYARD_ATTEMPT", "0"))

JOIN_PATIENCE = 300.0  # seconds: other workers may still be waiting for their machine
STEP_PATIENCE = 60.0  # seconds without a word, after which a worker counts as lost

MAGIC = b"digits1\n"
HELLO = struct.Struct("!8sIII")  # MAGIC, rank, number of workers, attempt
LENGTH = struct.Struct("!Q")  # in front of every message


def say(text: str) -> None:
    """For people. Worker 0 speaks for all; the others say who they are."""
    print(text if RANK == 0 else f"rank {RANK}: {text}", flush=True)


class PeerLost(Exception):
    """Another worker is gone, and no step can be made without it."""


class Group:
    """Returns from its constructor when all workers are there."""

    def __init__(self) -> None:
        self.peers: dict[int, socket.socket] = {}
        if WORLD_SIZE > 1:
            self.peers = accept_all() if RANK == 0 else {0: connect()}

    def sum(self, values: list[float]) -> list[float]:
        """Everybody's values added up, always in the same order: all get the same result to the last bit."""
        if RANK != 0:
            self.send(0, array.array("d", values).tobytes())
            return list(array.array("d", self.receive(0)))
        for rank in range(1, WORLD_SIZE):
            values = list(map(add, values, array.array("d", self.receive(rank))))
        self.send_all(array.array("d", values).tobytes())
        return values

    def share(self, message: bytes) -> bytes:
        """What worker 0 has, for everybody."""
        if RANK != 0:
            return self.receive(0)
        self.send_all(message)
        return message

    def send_all(self, message: bytes) -> None:
        for rank in range(1, WORLD_SIZE):
            self.send(rank, message)

    def send(self, rank: int, message: bytes) -> None:
        try:
            self.peers[rank].sendall(LENGTH.pack(len(message)) + message)
        except OSError as error:
            raise PeerLost(f"lost worker {rank}: {error}") from error

    def receive(self, rank: int) -> bytes:
        peer = self.peers[rank]
        try:
            (length,) = LENGTH.unpack(read_exactly(peer, LENGTH.size))
            message = read_exactly(peer, length)
        except OSError as error:
            raise PeerLost(f"lost worker {rank}: {error}") from error
        peer.settimeout(STEP_PATIENCE)  # the first message had to wait until all were there
        return message


def read_exactly(peer: socket.socket, length: int) -> bytes:
    parts, missing = [], length
    while missing:
        part = peer.recv(min(missing, 1 << 20))
        if not part:
            raise ConnectionError("it closed the connection")
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


# Worker 0


def accept_all() -> dict[int, socket.socket]:
    """Waits until all others have called."""
    deadline = time.monotonic() + JOIN_PATIENCE
    peers: dict[int, socket.socket] = {}
    with listen_patiently() as server:
        while len(peers) < WORLD_SIZE - 1:
            server.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                peer, _ = server.accept()
            except socket.timeout:
                missing = sorted(set(range(1, WORLD_SIZE)) - set(peers))
                sys.exit(f"workers {missing} have not called within {JOIN_PATIENCE:.0f} s")
            rank = welcome(peer)
            if rank is None:
                peer.close()
            else:
                peers[rank] = peer
    return peers


def welcome(peer: socket.socket) -> int | None:
    """The rank of the caller, or None for a stranger or a worker of an earlier attempt."""
    peer.settimeout(5)
    try:
        answer_at_once(peer)
        magic, rank, world_size, attempt = HELLO.unpack(read_exactly(peer, HELLO.size))
        if (magic, world_size, attempt) != (MAGIC, WORLD_SIZE, ATTEMPT) or not 0 < rank < WORLD_SIZE:
            return None
        peer.sendall(MAGIC)
    except OSError:
        return None
    peer.settimeout(STEP_PATIENCE)
    return rank


def listen_patiently() -> socket.socket:
    """A predecessor of ours may need a moment to let go of the port."""
    deadline = time.monotonic() + 15
    while True:
        try:
            return listen()
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                sys.exit(f"worker 0 cannot listen on {MASTER_ADDR}:{MASTER_PORT}: {error}")
            time.sleep(0.1)


def listen() -> socket.socket:
    """On the address that the others call if it is ours, else on all that this machine has."""
    try:
        family, _, _, _, address = socket.getaddrinfo(MASTER_ADDR, MASTER_PORT, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=WORLD_SIZE)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    return socket.create_server(("", MASTER_PORT), family=family, dualstack_ipv6=both, backlog=WORLD_SIZE)


# The others


def connect() -> socket.socket:
    """Calls worker 0 until it answers. At first its name may be unknown and its port closed."""
    deadline, next_word = time.monotonic() + JOIN_PATIENCE, time.monotonic() + 5
    while True:
        try:
            return call()
        except OSError as error:
            now = time.monotonic()
            if now > deadline:
                sys.exit(f"rank {RANK}: worker 0 does not answer at {MASTER_ADDR}:{MASTER_PORT}: {error}")
            if now > next_word:
                say(f"waiting for worker 0 at {MASTER_ADDR}:{MASTER_PORT}: {error}")
                next_word = now + 30
            time.sleep(0.1)


def call() -> socket.socket:
    peer = socket.create_connection((MASTER_ADDR, MASTER_PORT), timeout=5)
    try:
        answer_at_once(peer)
        peer.sendall(HELLO.pack(MAGIC, RANK, WORLD_SIZE, ATTEMPT))
        if read_exactly(peer, len(MAGIC)) != MAGIC:
            raise ConnectionError("something else listens there")
    except OSError:
        peer.close()
        raise
    peer.settimeout(JOIN_PATIENCE)  # worker 0 speaks next when all are there
    return peer


def answer_at_once(peer: socket.socket) -> None:
    """Without this, the system keeps small messages back for a while."""
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
