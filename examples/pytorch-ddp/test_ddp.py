#!/usr/bin/env python3
"""The tests of ../digits, with the program of this directory. Skipped where torch is not installed:

    python3 examples/pytorch-ddp/test_ddp.py
"""

import importlib.util
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "digits"))
import test_train  # noqa: E402

test_train.Worker.script = HERE / "train.py"
TORCH = importlib.util.find_spec("torch") is not None


@unittest.skipUnless(TORCH, "torch is not installed")
class Learning(test_train.Learning):
    pass


@unittest.skipUnless(TORCH, "torch is not installed")
class Recovery(test_train.Recovery):
    suffix = ".pt"


if __name__ == "__main__":
    unittest.main()
