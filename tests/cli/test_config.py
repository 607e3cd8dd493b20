"""`--config FILE.toml`: settings as in the flags, and flags win."""

from pathlib import Path

import pytest

from gradless.records import RunDirectory


def plan_and_algorithm(run="run"):
    with RunDirectory.open(run) as stored:
        return stored.settings["plan"], stored.settings["algorithm"]


def write(text):
    Path("settings.toml").write_text(text)
    return ["--config", "settings.toml", "--quiet"]


def test_settings_come_from_the_file_and_flags_win(cli):
    config = write('steps = 20\nsigma = 0.5\nn-s = inf\nsignal_norm = false\nseed = 4\nbatch = 5\nrun = "run"\n')
    cli("train", "tiny:fit", *config, "--sigma", 0.25, "--seed", 7)
    plan, algorithm = plan_and_algorithm()
    assert (plan["steps"], plan["seed"], plan["batches"]["size"]) == (20, 7, 5)
    assert (algorithm["sigma"], algorithm["n_s"], algorithm["signal_norm"]) == (0.25, "inf", False)


def test_a_flag_wins_over_a_setting_of_the_file_that_excludes_it(cli):
    cli("train", "tiny:fit", *write("steps = 20"), "--epochs", 3, "--run", "run")
    assert plan_and_algorithm()[0]["steps"] == 3


def test_options_of_the_problem_may_stand_in_the_file(cli):
    cli("train", "rosenbrock", *write("x = -1\ny = 0.5\nsteps = 2"), "--y", 3, "--run", "run")
    with RunDirectory.open("run") as stored:
        assert stored.settings["options"] == {"x": -1.0, "y": 3.0}


def test_a_file_may_begin_with_a_byte_order_mark(cli):
    Path("settings.toml").write_bytes(b"\xef\xbb\xbfsteps = 3\n")
    cli("train", "tiny:fit", "--config", "settings.toml", "--run", "run")
    assert plan_and_algorithm()[0]["steps"] == 3


def test_a_grid_may_be_a_list(cli):
    cli("sweep", "tiny:fit", *write("steps = 2\nsigma = [1e-3, 0.1]"), "--run", "run")
    assert plan_and_algorithm()[1]["sigma"] == [1e-3, 0.1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("stepz = 3", "sets 'stepz', which is no setting; steps?"),
        ("[steps]\nfirst = 3", "is not a valid integer"),
        ("[table]\nx = 3", "sets 'table', which is no setting"),
        ("n_s = 3\nn-s = 4", "sets 'n_s' twice, with _ and with -"),
        ("steps = = 3", "is not TOML"),
        ("steps = 2.5", "'2.5' is not a valid integer"),
        ('steps = "x"', "'x' is not a valid integer"),
        ("steps = true", "'True' is not a valid integer"),
        ("seed = 1.5", "'1.5' is not a valid integer"),
        ("sigma = [1]", "must be a number or auto, got '[1]'"),
        ("sigma = -1", "sigma must be positive, got -1.0"),
        ("time = [1]", "must look like 90s"),
        ("temperature = [1, 2]", "must be a number, or START:END"),
        ("quiet = 'perhaps'", "'perhaps' is not a valid boolean"),
        ("config = 'other.toml'", "sets 'config', which is no setting"),
        ("problem = 'sine'", "sets 'problem', which is no setting"),
        ("algorithm = 'sgd'", "'sgd' is not one of"),
        (f"steps = {'[' * 5000}", "is not TOML"),
        ("steps = [3]", "'[3]' is not a valid integer"),
    ],
)
def test_a_wrong_file_is_refused_in_a_line(refusal, text, told):
    config, name, _ = write(text)
    assert told in refusal("train", "tiny:fit", config, name, "--run", "run")
    assert not Path("run").exists()


def test_a_file_that_cannot_be_read_is_refused(refusal):
    assert "nosuch.toml cannot be read: No such file or directory" in refusal(
        "train", "tiny:fit", "--config", "nosuch.toml"
    )
    assert ". cannot be read: Is a directory" in refusal("train", "tiny:fit", "--config", ".")
    Path("binary.toml").write_bytes(b"\xff\xfe")
    assert "binary.toml is not TOML" in refusal("train", "tiny:fit", "--config", "binary.toml")
