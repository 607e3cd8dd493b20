"""Options come from the function that makes a problem, and a user's own module is one line when it fails."""

from pathlib import Path

import pytest

from gradless.cli.train import command
from gradless.records import RunDirectory

MODULE = """
import jax.numpy as jnp
import numpy as np
import gradless as gl

def loss(x):
    return jnp.sum(x**2)

problem = gl.Problem(np.ones(3), loss)
number = 5

def sized(size: int = 3, scale: float = 1.0, flip: bool = False, name="x", many=2):
    assert type(many) is int
    return gl.Problem((-1) ** flip * scale * np.ones(size), loss)

def needy(size: int):
    return sized(size)

def open_ended(*args, **kwargs):
    return problem

def clashing(run: str = "x"):
    return problem

def unreadable(size: "Nowhere" = 3):
    return sized(size)

def failing():
    return 1 / 0

def other():
    return "no problem"

wrong_start = gl.Problem(lambda key: [][0], loss)
wrong_loss = gl.Problem(np.ones(3), lambda x: x @ jnp.ones((4, 4)))
wrong_metrics = gl.Problem(np.ones(3), loss, metrics=lambda x: {"a": x.nothing})
wrong_algorithm = gl.Problem(np.ones(3), loss, algorithms={"sgd": {}})
wrong_setting = gl.Problem(np.ones(3), loss, algorithms={"amc": {"sigmaa": 1}})

from typing import Optional

def perhaps(size: int | None = None, scale: "Optional[float]" = None, sizes: tuple[int, ...] = (3,)):
    assert (type(size), type(scale), sizes) == (int, float, (3,))
    return sized(size, scale)

from jax import pure_callback

def simulated(x):
    return {}["energy"]

called_back = gl.Problem(np.ones(3), lambda x: pure_callback(simulated, x[0], x))
"""


@pytest.fixture
def module(request, cli):
    """A module in the current folder, of another name in every test, since Python imports a name once."""
    name = f"own_{abs(hash(request.node.name))}"
    Path(f"{name}.py").write_text(MODULE)
    return name


def options(run="run"):
    with RunDirectory.open(run) as stored:
        return stored.settings["options"]


def test_a_problem_and_a_function_with_options_are_found_in_the_current_folder(cli, module):
    cli("train", f"{module}:problem", "--run", "run", "--steps", 3, "--quiet")
    assert options() == {}
    words = ["--size", 2, "--scale", 0.5, "--flip", "--name", "y", "--many", 3]
    cli("train", f"{module}:sized", *words, "--run", "two", "--steps", 3, "--quiet")
    assert options("two") == {"size": 2, "scale": 0.5, "flip": True, "name": "y", "many": 3}
    cli("resume", "two", "--trust", "--steps", 5, "--quiet")
    cli("train", f"{module}:perhaps", "--size", 2, "--scale", 0.5, "--run", "three", "--steps", 3, "--quiet")
    assert options("three") == {"size": 2, "scale": 0.5}
    assert "No such option '--sizes'" in cli("train", f"{module}:perhaps", "--sizes", "3,4", code=2).output


@pytest.mark.parametrize(
    ("args", "name"),
    [
        (["sine", "--depth", "4"], "sine"),
        (["--depth", "4", "sine"], "sine"),
        (["--depth=4", "sine"], "sine"),
        (["--skip", "step", "--depth", "3"], "step"),
        (["--skip", "--depth", "3", "step"], "step"),
        (["--no-skip", "mine:problem"], "mine:problem"),
        (["--x", "-2.0", "rosenbrock"], "rosenbrock"),
        (["--run", "digits", "sine"], "sine"),
        (["--quiet", "--run=digits", "sine"], "sine"),
        (["--temperature", "1:2", "--batch", "progressive:5", "digits"], "digits"),
        (["--config", "sine", "--json", "digits"], "digits"),
        (["--signal-norm", "digits"], "digits"),
        (["--help"], None),
        (["--help", "sine"], "sine"),
        ([], None),
        (["--run"], None),
    ],
)
def test_the_problem_is_found_wherever_it_stands(args, name):
    assert command._find_name(args) == name


@pytest.mark.parametrize(
    ("args", "found"),
    [
        (["--depth", 1, "sine", "--width", 2], {"depth": 1, "width": 2}),
        (["sine", "--width", 2, "--depth", 1], {"depth": 1, "width": 2}),
        (["--skip", "step", "--depth", 3], {"depth": 3, "skip": True}),
        (["step", "--no-skip"], {"skip": False}),
        (["--x", "-3", "rosenbrock", "--y=4"], {"x": -3.0, "y": 4.0}),
        (["digits"], {}),
    ],
)
def test_options_before_and_after_the_name_reach_the_problem(cli, monkeypatch, args, found):
    given = []

    def stop_here(*_, about, **__):
        given.append(about["options"])
        raise ValueError("far enough")

    monkeypatch.setattr("gradless.cli.follow.start_problem", stop_here)
    cli("train", *args, "--run", "run", code=2)
    assert given == [found]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("number", "must be a Problem, or a function that returns one, got 5"),
        ("nothing", "has no nothing"),
        ("needy", "missing a required argument: 'size'"),
        ("clashing", "has an option --run, which is a flag of every run: rename it"),
        ("failing", ".py, line 29: ZeroDivisionError: division by zero"),
        ("other", "must return a gradless.Problem, got str"),
        ("wrong_start", ".py, line 34: IndexError: list index out of range"),
        ("wrong_loss", ".py, line 35: TypeError: dot_general requires"),
        ("wrong_metrics", ".py, line 36: AttributeError: "),
        ("called_back", ".py, line 49: KeyError: 'energy'"),
        ("wrong_algorithm", "algorithms of the problem must be among mc, amc, gd, adam, got 'sgd'"),
        ("wrong_setting", "algorithm amc of the problem has no setting 'sigmaa'"),
    ],
)
def test_a_mistake_in_a_users_problem_is_one_line_that_says_where(refusal, module, name, told):
    assert told in refusal("train", f"{module}:{name}", "--run", "run", "--steps", 3)
    assert not Path("run").exists()


@pytest.mark.parametrize("name", ["open_ended", "unreadable"])
def test_unusual_signatures_are_taken_as_they_are(cli, module, name):
    cli("train", f"{module}:{name}", "--run", "run", "--steps", 3, "--quiet")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1 / 0", "ZeroDivisionError: division by zero, "),
        ("def (", "SyntaxError: invalid syntax"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("import not_here", "ModuleNotFoundError: No module named 'not_here'"),
        ("import os; os.nothing", "AttributeError: module 'os' has no attribute 'nothing'"),
        ("raise KeyError", "KeyError"),
    ],
)
def test_a_module_that_cannot_be_imported_is_one_line(refusal, request, text, told):
    name = f"broken_{abs(hash(text))}"
    Path(f"{name}.py").write_text(text)
    line = refusal("train", f"{name}:problem")
    assert line.startswith(f"problem '{name}:problem': module {name} cannot be imported (")
    assert told in line


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nowhere_at_all:x", "No module named 'nowhere_at_all'"),
        ("mine.py:x", "give its name, without folder and .py, as in mine:x"),
        (".relative:x", "cannot be imported"),
        (":x", "must name a module and what to take from it"),
        ("os:", "must name a module and what to take from it"),
        ("os:getcwd", "must return a gradless.Problem, got str"),
        ("os:system", "missing a required argument: 'command'"),
    ],
)
def test_names_that_lead_nowhere_are_one_line(refusal, name, told):
    assert told in refusal("train", name)


def test_a_module_whose_name_begins_like_a_data_set_fetches_nothing(cli, monkeypatch):
    monkeypatch.setattr("gradless.cli.problem_options.fetch_mnist", lambda *_: pytest.fail("MNIST was fetched"))
    Path("mnist_of_my_own.py").write_text(MODULE)
    cli("train", "mnist_of_my_own:problem", "--run", "run", "--steps", 2, "--quiet")
