"""The end of a metrics file, read as it grows, is cut back and is replaced."""

import math

import numpy as np
import pytest

from gradless.records import Metrics, Tail


def rows(first, last):
    return [{"step": step, "seconds": step / 10, "loss": 1 / (1 + step)} for step in range(first, last)]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"")
    return path


def test_only_what_is_new_is_taken_in(path):
    tail = Tail(path)
    assert not tail.read()
    Metrics(path).append(rows(0, 3))
    assert tail.read()
    assert not tail.read()
    Metrics(path).append(rows(3, 5))
    assert tail.read()
    assert tail.table()["step"].tolist() == [0, 1, 2, 3, 4]
    assert tail.table()["loss"].tolist() == [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5]


def test_a_torn_line_waits_until_it_is_whole(path):
    tail = Tail(path)
    path.write_bytes(b'{"step":0,"loss":1}\n{"step":1,"lo')
    tail.read()
    assert tail.num_rows == 1
    with path.open("ab") as file:
        file.write(b'ss":2}\n')
    assert tail.read()
    assert tail.table()["loss"].tolist() == [1, 2]
    assert tail.left_out == 0


@pytest.mark.parametrize("grown", [False, True], ids=["shorter", "grown beyond the old end since"])
def test_a_file_that_was_cut_back_is_read_again(path, grown):
    tail = Tail(path)
    Metrics(path).append(rows(0, 9))
    tail.read()
    Metrics(path).truncate_after(4)
    later = [row | {"loss": 7.5} for row in rows(5, 30 if grown else 6)]
    Metrics(path).append(later)
    assert tail.read()
    assert tail.table()["step"].tolist() == list(range(30 if grown else 6))
    assert tail.table()["loss"][5] == 7.5


def test_an_emptied_file_is_news(path):
    tail = Tail(path)
    Metrics(path).append(rows(0, 2))
    tail.read()
    path.write_bytes(b"")
    assert tail.read()
    assert tail.num_rows == 0


def test_chains_are_columns_and_words_for_no_number_are_floats(path):
    Metrics(path).append([{"step": 0, "seconds": 0.0, "loss": [1.0, math.nan], "sigma": [math.inf, 2.0]}])
    tail = Tail(path)
    tail.read()
    table = tail.table()
    assert table["loss"].shape == (1, 2)
    assert math.isnan(table["loss"][0, 1])
    assert np.isinf(table["sigma"][0, 0])


def test_what_is_damaged_or_unlike_the_first_row_is_left_out(path):
    lines = [
        b'{"step":0,"loss":1,"note":"words","odd":[1,2]}',
        b"{garbage",
        b'{"step":2}',
        b'{"step":3,"loss":"much"}',
        b'{"step":4,"loss":[1,2]}',
        b'{"step":5,"loss":5}',
        b'{"step":4,"loss":4}',
        b'{"step":1' + b"0" * 400 + b',"loss":4}',
        b'{"step":6,"loss":1' + b"0" * 400 + b"}",
    ]
    path.write_bytes(b"\n".join(lines) + b"\n")
    tail = Tail(path)
    tail.read()
    assert {name: values.tolist() for name, values in tail.table().items()} == {
        "step": [0, 5, 6],
        "loss": [1, 5, math.inf],
    }
    assert tail.left_out == 6
