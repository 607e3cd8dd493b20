"""The tables of the figures: whole on the disk or not there, and nothing but a whole one is read."""

import pytest

from gradless.experiments.tables import furthest, read_table, table_so_far, write_table
from gradless.records import disk

ROWS = [{"run": "a", "step": 1.0}, {"run": "b", "step": float("inf")}]


def test_a_table_comes_back_with_numbers_as_numbers(tmp_path):
    write_table(tmp_path / "t.csv", ROWS)
    assert read_table(tmp_path / "t.csv") == ROWS
    assert (tmp_path / "t.csv").read_bytes() == b"run,step\r\na,1.0\r\nb,inf\r\n"


def test_the_old_table_stays_until_the_new_one_is_safe(tmp_path, monkeypatch):
    write_table(tmp_path / "t.csv", ROWS)

    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_table(tmp_path / "t.csv", ROWS[:1])
    assert read_table(tmp_path / "t.csv") == ROWS
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", bytes(9), b"run,step\n", b"run,step\na\n", b"run,step\na,1,2\n"])
def test_a_damaged_table_is_refused_by_name(tmp_path, text):
    (tmp_path / "t.csv").write_bytes(text)
    with pytest.raises(ValueError, match=r"t\.csv is .*: restore it, or delete it and run the figure again"):
        read_table(tmp_path / "t.csv")


def test_a_table_without_a_column_is_refused_by_name(tmp_path):
    write_table(tmp_path / "t.csv", ROWS)
    assert table_so_far(tmp_path / "t.csv", "run", "step") == ROWS
    assert table_so_far(tmp_path / "none.csv", "run") == []
    with pytest.raises(ValueError, match=r"t\.csv has no column is_over"):
        table_so_far(tmp_path / "t.csv", "run", "is_over")


def test_of_each_run_those_rows_stay_that_got_further():
    def rows(run, *steps, is_over=0):
        return [{"run": run, "step": step, "is_over": is_over} for step in steps]

    noted = rows("a", 1, 5) + rows("b", 1, 2) + rows("c", 1, is_over=1) + rows("d", 3)
    made = rows("a", 1, 3) + rows("b", 1, 4) + rows("c", 1, 9) + rows("e", 2)
    kept = furthest(noted, made, lambda row: row["run"])
    wanted = rows("a", 1, 5) + rows("b", 1, 4) + rows("c", 1, is_over=1) + rows("d", 3) + rows("e", 2)
    assert sorted(kept, key=str) == sorted(wanted, key=str)
