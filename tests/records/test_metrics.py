"""metrics.jsonl: exact round trips, torn ends, cutting back."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradless.records import Metrics, RunError, json_text

ROWS = [
    {"step": 0, "loss": 0.1 + 0.2, "chain": 0},
    {"step": 100, "loss": math.inf, "sigma": 1e-300, "note": "é\n"},
    {"step": 100, "loss": -math.inf, "losses": [1.0, math.nan]},
    {"step": 250, "loss": math.nan, "deep": {"x": math.nan}},
]


@pytest.fixture
def metrics(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"")
    return Metrics(path)


def test_others_get_null_for_what_json_lacks():
    value = {"a": [1.0, math.nan, np.float32("inf")], "b": np.array([0.5, -math.inf]), "c": ("NaN", None)}
    assert json_text.dumps_for_others(value) == '{"a":[1.0,null,null],"b":[0.5,null],"c":["NaN",null]}'


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "'NaN", "''-Infinity", "'", "nan", "'it's", ""])
def test_text_that_looks_like_a_number_stays_text(text):
    value = {"label": text, "deep": [[text, math.inf], {text: text}]}
    assert json_text.loads(json_text.dumps(value)) == value


def test_words_that_were_numbers_in_a_file_still_are():
    assert json_text.loads('["Infinity","-Infinity"]') == [math.inf, -math.inf]
    assert json_text.dumps([math.nan, -math.inf]) == '["NaN","-Infinity"]'


def test_round_trip_with_non_finite_numbers(metrics):
    metrics.append(ROWS[:2])
    metrics.append(ROWS[2:])
    assert repr(list(metrics.rows())) == repr(ROWS)  # repr, because NaN is not equal to itself
    for line in metrics.path.read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)  # valid JSON: no bare NaN


def test_numpy_values_become_plain_ones(metrics):
    metrics.append([{"step": np.int64(3), "loss": np.float32(0.1), "ok": np.True_, "x": np.array([1.5, np.nan])}])
    (row,) = metrics.rows()
    assert repr(row) == repr({"step": 3, "loss": float(np.float32(0.1)), "ok": True, "x": [1.5, math.nan]})


@given(st.floats(width=64))
@settings(max_examples=200, derandomize=True, deadline=None)
def test_every_float_round_trips_exactly(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("m") / "metrics.jsonl"
    path.write_bytes(b"")
    Metrics(path).append([{"step": 1, "x": value}])
    (row,) = Metrics(path).rows()
    expected = math.nan if math.isnan(value) else value  # JSON has no payload bits of NaN
    assert np.float64(row["x"]).tobytes() == np.float64(expected).tobytes()


@pytest.mark.parametrize("row", [{}, {"step": -1}, {"step": 1.0}, {"step": True}, {"step": 1, "x": "a" * (1 << 20)}])
def test_bad_rows_are_refused_and_nothing_is_written(metrics, row):
    with pytest.raises(ValueError, match="metrics row"):
        metrics.append([{"step": 1}, row])
    assert metrics.path.read_bytes() == b""


def test_a_torn_last_line_at_every_byte(metrics):
    metrics.append(ROWS)
    metrics.sync()
    whole = metrics.path.read_bytes()
    for size in range(len(whole) + 1):
        metrics.path.write_bytes(whole[:size])
        complete = whole[:size].count(b"\n")
        torn = Metrics(metrics.path)
        assert len(list(torn.rows())) == complete
        torn.append([{"step": 300}])  # repairs first
        assert [row["step"] for row in torn.rows()] == [row["step"] for row in ROWS[:complete]] + [300]


def test_damage_before_good_rows_is_an_error_with_its_line(metrics):
    metrics.path.write_text('{"step":1}\n{"st\n{"step":3}\n')
    with pytest.raises(RunError, match="damaged at line 2"):
        list(metrics.rows())
    with pytest.raises(RunError, match="damaged at line 2"):
        metrics.truncate_after(5)
    assert metrics.path.read_text() == '{"step":1}\n{"st\n{"step":3}\n'
    metrics.truncate_after(2)  # what lies after the checkpoint does not matter
    assert metrics.path.read_text() == '{"step":1}\n'


@pytest.mark.parametrize("tail", [b"\0" * 50, b"\0\n\xff\n", b'{"step":4', b"[" * 5000 + b"\n", b"x" * 3_000_000])
def test_a_garbled_end_is_left_out_and_cut(metrics, tail):
    metrics.path.write_bytes(b'{"step":1}\n' + tail)
    assert list(metrics.rows()) == [{"step": 1}]
    metrics.truncate_after(10)
    assert metrics.path.read_bytes() == b'{"step":1}\n'


def test_truncate_after_every_step(metrics):
    metrics.append(ROWS)
    metrics.sync()
    whole = metrics.path.read_bytes()
    for step in (-1, 0, 99, 100, 249, 250, 999):
        metrics.path.write_bytes(whole)
        metrics.truncate_after(step)
        assert repr(list(metrics.rows())) == repr([row for row in ROWS if row["step"] <= step])
        metrics.append([{"step": 1000}])
        assert list(metrics.rows())[-1] == {"step": 1000}


def test_rows_out_of_order_are_kept_and_cut_by_step(metrics):
    metrics.append([{"step": step} for step in (5, 20, 6, 30, 7)])
    metrics.truncate_after(10)
    assert [row["step"] for row in metrics.rows()] == [5, 6, 7]


def test_thinning_keeps_the_newest(metrics):
    metrics.add([{"step": step} for step in range(5)])
    assert metrics.thin_waiting() == 2
    metrics.sync()
    assert [row["step"] for row in metrics.rows()] == [0, 2, 4]
