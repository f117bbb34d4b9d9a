"""Small pictures of handwritten-looking digits, made by this file and the same on every machine.

Each picture has 8 x 8 pixels between 0 (paper) and 1 (ink). It starts as one of the ten drawings below, is put
somewhere in the square, gets more or less ink and a lot of dirt. Nothing is downloaded.
"""

from __future__ import annotations

import random
from typing import NamedTuple

SIDE = 8
PIXELS = SIDE * SIDE
CLASSES = 10

DRAWINGS = (
    (" ### ", "#   #", "#   #", "#   #", "#   #", "#   #", " ### "),
    ("  #  ", " ##  ", "# #  ", "  #  ", "  #  ", "  #  ", "#####"),
    (" ### ", "#   #", "    #", "  ## ", " #   ", "#    ", "#####"),
    ("#### ", "    #", "    #", " ### ", "    #", "    #", "#### "),
    ("   # ", "  ## ", " # # ", "#  # ", "#####", "   # ", "   # "),
    ("#####", "#    ", "#### ", "    #", "    #", "#   #", " ### "),
    ("  ## ", " #   ", "#    ", "#### ", "#   #", "#   #", " ### "),
    ("#####", "    #", "   # ", "  #  ", "  #  ", " #   ", " #   "),
    (" ### ", "#   #", "#   #", " ### ", "#   #", "#   #", " ### "),
    (" ### ", "#   #", "#   #", " ####", "    #", "   # ", " ##  "),
)

# How dirty the pictures are. Without any dirt the task would be learned before one could watch.
DIRT = 0.2

# Pixels have seventeen shades. All pictures share these seventeen numbers, which saves memory.
SHADES = tuple(shade / 16 for shade in range(17))


class Digit(NamedTuple):
    pixels: tuple[float, ...]
    label: int


def draw(label: int, dice: random.Random) -> Digit:
    """One picture of a digit; no two are alike."""
    drawing = DRAWINGS[label]
    height, width = len(drawing), len(drawing[0])
    top, left = dice.randint(0, SIDE - height), dice.randint(0, SIDE - width)
    ink = dice.uniform(0.5, 1.0)
    pixels = [0.0] * PIXELS
    for row in range(height):
        for column in range(width):
            if drawing[row][column] == "#":
                pixels[(top + row) * SIDE + left + column] = ink
    return Digit(tuple(shade(pixel + dice.gauss(0.0, DIRT)) for pixel in pixels), label)


def shade(value: float) -> float:
    return SHADES[max(0, min(16, round(value * 16)))]


def make_digits(count: int, name: str) -> list[Digit]:
    """The same pictures for the same name, whoever asks; all ten digits equally often."""
    dice = random.Random(name)
    return [draw(index % CLASSES, dice) for index in range(count)]
