"""The example learns something true: its simulator against theory, and the command of its docstring, tiny."""

import importlib.util
import math
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PATH = Path(__file__).parents[2] / "examples" / "moving_trap.py"
spec = importlib.util.spec_from_file_location("moving_trap", PATH)
trap = importlib.util.module_from_spec(spec)
spec.loader.exec_module(trap)


def test_mean_work_is_that_of_the_theory():
    assert trap.mean_work([0.0] * 8) == pytest.approx(12.5, abs=1e-12)
    n = 2000  # a path of n jumps is one of 1/n short stands: what is left out is of the order 25 / n^2
    steady = [5 * (i + 0.5) / n for i in range(n)]
    assert trap.mean_work(steady) == pytest.approx(25 * math.exp(-1), abs=1e-4)
    best = [5 * ((i + 0.5) / n + 1) / 3 for i in range(n)]
    assert trap.mean_work(best) == pytest.approx(25 / 3, abs=1e-4)


def test_simulated_work_has_that_mean_and_the_variance_of_fluctuation_theorems():
    """Work is Gaussian here and the free energy does not change, so the variance is twice the mean: 17.2.

    Over 4000 paths the mean has error sqrt(17.2 / 4000) = 0.066 and the variance 17.2 sqrt(2 / 4000) = 0.38.
    """
    protocol = [2.65, 2.04, 3.15, 2.48, 3.10, 3.66, 3.16, 3.40]
    rng = random.Random(1)
    works = [trap.simulate(protocol, rng) for _ in range(4000)]
    mean = trap.mean_work(protocol)
    assert abs(np.mean(works) - mean) < 4.5 * 0.066
    assert abs(np.var(works) - 2 * mean) < 4.5 * 0.38


def test_the_command_of_the_example_learns(tmp_path):
    command = f"{sys.executable} -S {PATH} {{params}} {{seed}}"
    settings = {"dim": 8, "sigma": 1, "n-s": 10, "reevaluate-every": 10, "steps": 40, "workers": 2, "run": "run"}
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    subprocess.run(
        [sys.executable, "-m", "gradless", "optimize", "--command", command, *words], cwd=tmp_path, check=True
    )
    learnt = np.loadtxt(tmp_path / "run" / "best.txt")
    assert trap.mean_work(learnt.tolist()) < 10.5  # from 12.5
    told = subprocess.run([sys.executable, str(PATH), "compare", "run/best.txt"], cwd=tmp_path, capture_output=True)
    assert [line.split()[0] for line in told.stdout.decode().splitlines()] == ["steady", "learnt", "theory"]
