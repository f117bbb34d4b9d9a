"""The network: pixels -> hidden neurons -> one score per digit, in plain Python.

A layer is a list of rows, one per neuron; a row is one weight per input and, last, the bias. All weights together are
one flat list, which is easy to add up, to send and to save.
"""

from __future__ import annotations

import math
import random
from itertools import chain
from operator import mul

from digits import CLASSES, PIXELS, Digit


def split_rows(flat: list[float], hidden: int) -> tuple[list[list[float]], list[list[float]]]:
    """The rows of the first and of the second layer."""
    wide, end = PIXELS + 1, hidden * (PIXELS + 1)
    first = [flat[start : start + wide] for start in range(0, end, wide)]
    second = [flat[start : start + hidden + 1] for start in range(end, len(flat), hidden + 1)]
    return first, second


def first_weights(hidden: int, seed: int) -> list[float]:
    """Small random weights, as large as the number of inputs allows, and no bias."""
    dice = random.Random(f"weights {seed}")

    def row(inputs: int) -> list[float]:
        reach = math.sqrt(3 / inputs)
        return [dice.uniform(-reach, reach) for _ in range(inputs)] + [0.0]

    rows = [row(PIXELS) for _ in range(hidden)] + [row(hidden) for _ in range(CLASSES)]
    return list(chain.from_iterable(rows))


def look(rows: tuple, pixels: tuple[float, ...]) -> tuple:
    """The network at work: its inputs, what the hidden neurons say, and the probability of each digit."""
    first, second = rows
    inputs = pixels + (1.0,)  # the bias counts as the weight of an input that is always 1
    inner = [max(0.0, sum(map(mul, row, inputs))) for row in first]
    inner.append(1.0)
    scores = [sum(map(mul, row, inner)) for row in second]
    highest = max(scores)
    powers = [math.exp(score - highest) for score in scores]
    total = sum(powers)
    return inputs, inner, [power / total for power in powers]


def gradient_and_loss(weights: list[float], digits: list[Digit], hidden: int) -> list[float]:
    """Sums over these pictures: the gradient of every weight and, last, the loss."""
    rows = split_rows(weights, hidden)
    first, second = split_rows([0.0] * len(weights), hidden)
    loss = 0.0
    for digit in digits:
        inputs, inner, chances = look(rows, digit.pixels)
        loss -= math.log(max(chances[digit.label], 1e-12))
        chances[digit.label] -= 1.0
        blame = [0.0] * hidden
        for label, error in enumerate(chances):
            second[label] = [g + error * value for g, value in zip(second[label], inner)]
            blame = [b + error * weight for b, weight in zip(blame, rows[1][label])]
        for neuron, error in enumerate(blame):
            if inner[neuron] > 0.0:  # a silent neuron is not to blame
                first[neuron] = [g + error * value for g, value in zip(first[neuron], inputs)]
    return [*chain.from_iterable(first), *chain.from_iterable(second), loss]


def count_right(weights: list[float], digits: list[Digit], hidden: int) -> int:
    rows = split_rows(weights, hidden)
    answers = (look(rows, digit.pixels)[2] for digit in digits)
    return sum(chances.index(max(chances)) == digit.label for chances, digit in zip(answers, digits))
