"""What goes to the program and what comes back."""

import json
import math

import numpy as np
import pytest

from gradless.command.files import SUFFIXES, params_bytes, parse_loss, read_end, read_params

X = np.array([0.1, -1e-300, 1 / 3, 12345678.9])


@pytest.mark.parametrize("form", SUFFIXES)
def test_parameters_keep_every_digit(form, tmp_path):
    path = tmp_path / f"x{SUFFIXES[form]}"
    path.write_bytes(params_bytes(X, form))
    found, its_form = read_params(path)
    assert its_form == form
    np.testing.assert_array_equal(found, X)


def test_shapes_are_kept_where_the_format_has_them(tmp_path):
    square = X.reshape(2, 2)
    assert json.loads(params_bytes(square, "json")) == square.tolist()
    assert params_bytes(square, "text") == params_bytes(X, "text")
    (tmp_path / "x.npy").write_bytes(params_bytes(square, "npy"))
    assert read_params(tmp_path / "x.npy")[0].shape == (2, 2)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.txt", "1 two"),
        ("x.json", "{"),
        ("x.json", '{"a": 1}'),
        ("x.json", "[" * 100_000),
        ("x.npy", "no"),
        ("x.npy", "PK\3\4 as a zip file begins"),
    ],
)
def test_a_file_without_numbers_is_refused(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=r"x0 must be a file of numbers, as \w+: .*x\."):
        read_params(tmp_path / name)


def test_an_absent_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"x0 must be a file of numbers: .*: No such file"):
        read_params(tmp_path / "x.txt")


@pytest.mark.parametrize(
    ("text", "loss"),
    [
        ("1.5", 1.5),
        (" 1e-3\n", 1e-3),
        ("warming up\nstep 1\n0.25\n\n", 0.25),
        ('{"loss": 2, "time": 7}', 2.0),
        ('{\n  "loss": -2.5\n}\n', -2.5),
        ('log\n{"loss": 3.0}', 3.0),
        ("inf", math.inf),
        ("[" * 100_000 + "\n0.5", 0.5),
    ],
)
def test_results_that_are_understood(text, loss):
    assert parse_loss(text, "loss") == loss


def test_a_key_of_ones_own_and_nan():
    assert parse_loss('{"work": 1.25}', "work") == 1.25
    assert math.isnan(parse_loss("nan", "loss"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it gave no result"),
        (" \n", "it gave no result"),
        ("done", "its result is not a number: 'done'"),
        ('{"energy": 1}', "its result has no 'loss'"),
        ('{"loss": "low"}', "its result is not a number: 'low'"),
        ('{"loss": true}', "its result is not a number"),
        ("[1, 2]", "its result is not a number"),
        ("null", "its result is not a number"),
        ("[" * 100_000, "its result is not a number"),
        ('{"loss": 1' + "0" * 400 + "}", "its result is a number too large for floating point"),
    ],
)
def test_results_that_are_not(text, words):
    with pytest.raises(ValueError, match=words):
        parse_loss(text, "loss")


def test_of_a_long_output_the_end_is_read(tmp_path):
    (tmp_path / "out").write_text("x" * (3 << 20) + "\n0.5\n")
    text = read_end(tmp_path / "out")
    assert len(text) == 1 << 20
    assert parse_loss(text, "loss") == 0.5
    assert read_end(tmp_path / "absent") == ""
