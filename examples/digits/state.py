"""The state of a training, and how one step changes it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from network import first_weights


@dataclass
class State:
    """All that a restart needs to go on as if nothing had happened."""

    shape: dict  # the options that cannot change on the way
    epoch: int  # epochs done
    step: int  # steps done since the very beginning
    weights: list[float]
    speed: list[float]  # mean gradient of late (both optimizers)
    spread: list[float]  # mean squared gradient of late (adam)
    loss_sum: float = 0.0  # over the steps of the epoch that is under way
    loss: float | None = None  # of the last whole epoch
    accuracy: float | None = None  # after the last whole epoch


def new_state(shape: dict) -> State:
    weights = first_weights(shape["hidden"], shape["seed"])
    zeros = [0.0] * len(weights)
    return State(shape, 0, 0, weights, zeros, zeros)


def sgd(state: State, gradient: list[float], rate: float) -> None:
    """Gradient descent with momentum."""
    state.speed = [0.9 * s + g for s, g in zip(state.speed, gradient)]
    state.weights = [w - rate * s for w, s in zip(state.weights, state.speed)]


def adam(state: State, gradient: list[float], rate: float) -> None:
    """Like sgd, but every weight has a step size of its own: small where the gradient jumps about."""
    state.speed = [0.9 * s + 0.1 * g for s, g in zip(state.speed, gradient)]
    state.spread = [0.999 * s + 0.001 * g * g for s, g in zip(state.spread, gradient)]
    # Both means start at zero and are too small at first.
    step = state.step + 1
    rate = rate / (1 - 0.9**step)
    enough = 1 / math.sqrt(1 - 0.999**step)
    state.weights = [
        w - rate * s / (math.sqrt(v) * enough + 1e-8) for w, s, v in zip(state.weights, state.speed, state.spread)
    ]


OPTIMIZERS = {"sgd": sgd, "adam": adam}
