"""The problems known by name: each can begin, says what it is, and refuses what it cannot be."""

import inspect
import sys
from typing import Annotated, get_args, get_origin, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradless as gl
from gradless.kernels import ALGORITHMS
from gradless.problems import PROBLEMS, find_problem, make_problem

HERE = [name for name in PROBLEMS if not name.startswith("mnist")]  # those that need no download
SMALL = {"sine": {"points": 9}, "log-sine": {"points": 9}, "step": {"depth": 3, "points": 9}}


@pytest.mark.parametrize("name", HERE)
def test_every_problem_has_a_finite_loss_and_metrics_at_its_start(name):
    problem = make_problem(name, SMALL.get(name, {}))
    params = problem.init(jax.random.key(0))
    has_data = problem.data is not None
    assert np.isfinite(problem.loss(params, problem.data) if has_data else problem.loss(params))
    if problem.metrics is not None:
        found = problem.metrics(params, problem.test) if problem.test is not None else problem.metrics(params)
        assert all(np.isfinite(value) and np.shape(value) == () for value in found.values())


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_option_has_a_default_and_words_and_every_problem_names_its_place_in_the_paper(name):
    factory = PROBLEMS[name]
    hints = get_type_hints(factory, include_extras=True)
    for option, parameter in inspect.signature(factory).parameters.items():
        assert parameter.default is not inspect.Parameter.empty
        assert get_origin(hints[option]) is Annotated
        kind, words = get_args(hints[option])
        assert type(parameter.default) is kind
        assert words
    assert name == "digits" or "Paper: " in factory.__doc__


@pytest.mark.parametrize("name", HERE)
def test_the_settings_to_begin_with_are_settings_of_known_algorithms(name):
    problem = make_problem(name, SMALL.get(name, {}))
    assert next(iter(problem.algorithms)) == "amc"
    for algorithm, settings in problem.algorithms.items():
        ALGORITHMS[algorithm](**settings)


def test_rosenbrock_is_the_papers():
    problem = make_problem("rosenbrock", {})
    # Eq. (6): (1 - x)^2 + 100 (y - x^2)^2 is 0 at (1, 1), and 9 + 100 (2 - 4)^2 = 409 at the start (-2, 2)
    assert problem.loss(jnp.array([1.0, 1.0])) == 0
    assert problem.loss(problem.init(None)) == 409
    assert problem.metrics(jnp.array([4.0, 5.0]))["distance"] == 5
    np.testing.assert_array_equal(make_problem("rosenbrock", {"x": 1, "y": 3.5}).init(None), [1, 3.5])


def test_a_plain_gaussian_start_is_as_wide_as_the_moves():
    start = make_problem("sine", {"points": 9}).init
    key = jax.random.key(1)
    ratio = jax.tree.map(lambda wide, narrow: wide / narrow, start(key, sigma=0.5), start(key, sigma=0.25))
    np.testing.assert_allclose(jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(ratio)]), 2, rtol=1e-6)
    fixed = make_problem("sine", {"points": 9, "init": "gaussian:0.1"}).init
    jax.tree.map(np.testing.assert_array_equal, fixed(key, sigma=0.5), fixed(key, sigma=0.25))


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("sin", {}, r"there is no problem 'sin'; did you mean sine or log-sine\? Your own is module:object"),
        ("xyzzy", {}, "did you mean digits or rosenbrock"),
        ("sine", {"breadth": 3}, "problem sine has no option 'breadth'; it has width, depth, points, init"),
        ("sine", {"width": "3"}, "width must be of the kind of 10, got '3'"),
        ("sine", {"width": True}, "width must be of the kind of 10, got True"),
        ("sine", {"width": 0}, "widths must be two or more positive whole numbers"),
        ("sine", {"width": 10**6}, r"must have at most 2.1e\+09 parameters, got 1.0e\+12"),
        ("sine", {"depth": -1}, "depth must be from 0 to 10000, got -1"),
        ("sine", {"depth": 10**9}, "depth must be from 0 to 10000"),
        ("sine", {"points": 1}, "points must be a whole number, 2 or more"),
        ("sine", {"init": "nope"}, "init must be one of"),
        ("step", {"depth": 0}, "depth must be from 1 to 10000, got 0"),
        ("step", {"skip": 1}, "skip must be of the kind of False, got 1"),
        ("rosenbrock", {"x": "0"}, "x must be of the kind of -2.0, got '0'"),
    ],
)
def test_what_a_problem_cannot_be_is_refused(name, options, words):
    with pytest.raises(ValueError, match=words):
        make_problem(name, options)


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    lines = [
        "from gradless import Problem",
        "problem = Problem(1.0, abs)",
        "def make(size: int = 1):",
        "  return Problem(size, abs)",
    ]
    (tmp_path / "module_of_a_user.py").write_text("\n".join(lines))
    yield "module_of_a_user"
    sys.modules.pop("module_of_a_user", None)


def test_a_problem_of_your_own_is_an_object_or_a_function_in_a_module(module):
    assert make_problem(f"{module}:problem", {}).init == 1.0
    assert make_problem(f"{module}:make", {"size": 3}).init == 3
    with pytest.raises(ValueError, match="has no option 'size'; it has none"):
        make_problem(f"{module}:problem", {"size": 3})
    with pytest.raises(ValueError, match=f"module {module} has no nothing"):
        find_problem(f"{module}:nothing")


def test_a_problem_that_ends_the_program_is_refused(module, tmp_path):
    with (tmp_path / f"{module}.py").open("a") as file:
        file.write("\ndef leave():\n  raise SystemExit(5)\n")
    with pytest.raises(ValueError, match=r"must return a gradless\.Problem, it ended with exit 5"):
        make_problem(f"{module}:leave", {})


@pytest.mark.parametrize("path", ["./{}.py", "{}.py", ".{}", "/folder/{}"])
def test_a_path_in_place_of_a_module_is_refused_with_the_name_to_give(module, path):
    name = f"{path.format(module)}:problem"
    told = rf"cannot be imported .*: give its name, without folder and .py, as in \.?{module}:problem"
    with pytest.raises(ValueError, match=told) as refused:
        find_problem(name)
    assert "importlib" not in str(refused.value)


def test_a_problem_needs_only_a_start_and_a_loss():
    problem = gl.Problem(np.ones(2), abs)
    assert (problem.data, problem.metrics, problem.batch, problem.precision) == (None, None, "full", "float32")
    assert list(problem.algorithms) == ["amc"]


def test_the_folder_one_stands_in_is_searched_for_problems_of_ones_own_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    find_problem("gradless.experiments.fig3:particle")
    assert str(tmp_path) not in sys.path  # a file matplotlib.py there would be imported instead of the library
    (tmp_path / "my_own_problem.py").write_text("import gradless as gl\nproblem = gl.Problem(0.0, lambda x: x**2)\n")
    assert callable(find_problem("my_own_problem:problem"))


@pytest.mark.parametrize("wrong", [["amc"], {"amc": 0.1}])
def test_settings_of_a_problem_are_a_dict_by_algorithm(wrong):
    with pytest.raises(ValueError, match="algorithms of a problem must be a dict of settings by the name"):
        gl.Problem(np.ones(2), lambda x: x.sum(), algorithms=wrong)
