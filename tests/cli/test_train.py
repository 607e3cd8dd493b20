"""`gradless train`: every flag, what it prints, where it writes, and what it refuses."""

import errno
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from gradless.records import Metrics, RunDirectory, disk


def settings(run):
    with RunDirectory.open(run) as stored:
        return stored.settings


def rows(run):
    with RunDirectory.open(run) as stored:
        return list(Metrics(stored.metrics_path).rows())


def test_a_run_prints_its_summary_and_leaves_its_record_and_figures(cli, figures):
    words = cli("train", "tiny:fit", "--run", "run", "--steps", 30).output
    for name in ("error ", "loss U ", "acceptance ", "sigma at the end ", "30 (all steps done)", "run "):
        assert name in words
    names = {"settings.json", "environment.json", "metrics.jsonl", "accepted.log", "checkpoints", "run.lock"}
    figures = {"training.png", "training.svg", "training.csv"}
    assert {path.name for path in Path("run").iterdir()} == names | figures


def test_quiet_prints_one_line(cli):
    result = cli("train", "tiny:fit", "--run", "run", "--steps", 10, "--quiet")
    (line,) = result.output.splitlines()
    assert line.startswith("U ")
    assert line.endswith("  run")


def test_json_lines_parse_and_the_last_is_the_result(cli):
    result = cli("train", "tiny:fit", "--run", "run", "--steps", 10, "--json")
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert [event["event"] for event in events] == ["record"] * (len(events) - 1) + ["result"]
    assert [event["step"] for event in events[:-1]] == [row["step"] for row in rows("run")]
    assert events[-1]["steps"] == 10
    assert events[-1]["run"] == "run"
    assert events[0]["acceptance"] is None  # NaN, which JSON lacks


def test_what_json_lacks_is_null_in_the_result_too(cli):
    words = ("train", "tiny:square", "--algorithm", "gd", "--learning-rate", 1e30, "--run", "run", "--json")
    *_, last = (json.loads(line) for line in cli(*words).stdout.splitlines())
    assert last["stopped_by"] == "diverged"
    assert last["sigma"] is None
    assert "lower the learning rate" in last["advice"]


def test_a_run_without_a_name_gets_the_next_free_one(cli):
    for number in (1, 2):
        cli("train", "tiny:square", "--steps", 5, "--quiet")
        assert len(list(Path("runs").glob(f"tiny-square-*-{number}"))) == 1


def test_an_existing_run_is_refused_and_overwritten_only_on_request(cli, refusal, contents):
    cli("train", "tiny:square", "--run", "run", "--steps", 20, "--quiet")
    Path("run/notes.txt").write_text("mine")
    Path("run/checkpoints/notes.txt").write_text("mine")
    before = contents("run")
    told = refusal("train", "tiny:square", "--run", "run", "--steps", 5)
    assert told == (
        "run already holds a run: go on with `gradless resume run` (in Python gl.resume), or give --overwrite "
        "(overwrite=True)"
    )
    assert contents("run") == before
    cli("train", "tiny:square", "--run", "run", "--steps", 5, "--overwrite", "--quiet")
    assert settings("run")["plan"]["steps"] == 5
    assert Path("run/notes.txt").read_text() == Path("run/checkpoints/notes.txt").read_text() == "mine"


@pytest.mark.parametrize("words", [["train"], ["train", "--sigma", "auto"], ["sweep", "--sigma", "0.1,0.2"]])
def test_that_a_folder_is_taken_is_known_before_anything_is_computed(cli, refusal, monkeypatch, words):
    cli("train", "tiny:square", "--run", "run", "--steps", 5, "--quiet")
    for module in ("gradless.cli.train.tune_problem", "gradless.runs.starting.prepare_problem"):
        monkeypatch.setattr(module, lambda *_: pytest.fail("computed in vain"))
    assert "run already holds a run" in refusal(*words, "tiny:square", "--run", "run")


def test_a_folder_that_is_no_run_is_never_touched(refusal, tmp_path):
    Path("mine").mkdir()
    Path("mine/thesis.tex").write_text("years of work")
    for more in ([], ["--overwrite"]):
        assert "holds no gradless run" in refusal("train", "tiny:square", "--run", "mine", *more)
    assert [path.name for path in Path("mine").iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--sigma", "-1"], "sigma must be positive, got -1.0"),
        (["--sigma", "nan"], "sigma must be positive"),
        (["--sigma", "x"], "must be a number or auto, got 'x'"),
        (["--epsilon", "2"], "epsilon must be between -1 and 1, got 2.0"),
        (["--epsilon", "x"], "'x' is not a valid float"),
        (["--n-s", "0"], "n_s must be a whole number of at least 1, or inf, got 0.0"),
        (["--n-s", "1.5"], "n_s must be a whole number"),
        (["--temperature", "-1"], "temperature must be zero or positive, got -1.0"),
        (["--temperature", "1:2:3"], "must be a number, or START:END for annealing, got '1:2:3'"),
        (["--temperature", "0:1"], "start must be positive, got 0.0"),
        (["--sigma-decay", "2"], "sigma_decay must be above 0 and at most 1, got 2.0"),
        (["--learning-rate", "0.1"], "--learning-rate does not apply to algorithm amc: it has --sigma"),
        (["--clip", "1"], "--clip does not apply to algorithm amc"),
        (
            ["--algorithm", "gd", "--sigma", "1"],
            "--sigma does not apply to algorithm gd: it has --learning-rate, --clip",
        ),
        (["--algorithm", "gd", "--learning-rate", "-1"], "learning_rate must be positive, got -1.0"),
        (["--algorithm", "gd", "--clip", "0"], "clip must be positive, got 0.0"),
        (["--algorithm", "gd", "--sigma", "auto"], "sigma can be tuned for Monte Carlo algorithms, got gd"),
        (["--algorithm", "sgd"], "'sgd' is not one of 'mc', 'amc', 'gd', 'adam'"),
        (["--steps", "0"], "steps must be a whole number from 1"),
        (["--steps", "99999999999"], "steps must be a whole number from 1"),
        (["--steps", "x"], "'x' is not a valid integer"),
        (["--epochs", "0"], "epochs must be a whole number from 1"),
        (["--epochs", "-3"], "epochs must be a whole number from 1"),
        (["--epochs", "99999999999999999999", "--batch", "5"], "epochs must be a whole number from 1"),
        (["--steps", "3", "--epochs", "3"], "--steps and --epochs exclude each other: give one"),
        (
            ["--epochs", "3", "--batch", "progressive:4"],
            "--epochs has no fixed number of steps with progressive batches",
        ),
        (["--temperature", "1:0.1", "--time", "9s"], "--temperature START:END needs --steps or --epochs, over which"),
        (["--time", "x"], "must look like 90s, 5m, 2h or 1h30m, got 'x'"),
        (["--time", ""], "must look like 90s, 5m, 2h or 1h30m, got ''"),
        (["--time", "0"], "time_budget must be positive, got 0.0"),
        (["--target-loss", "x"], "'x' is not a valid float"),
        (["--target-metric", "error"], 'target_metric must look like "accuracy >= 0.9"'),
        (["--target-metric", "accuracy >= 1"], "target_metric must name a metric (error), got 'accuracy'"),
        (["--batch", "13"], "size of a minibatch must be at most the 12 samples there are, got 13"),
        (["--batch", "0"], "size of a minibatch must be a whole number of at least 1, got 0"),
        (["--batch", "x"], "batch must be full, a size such as 2000, or progressive:500, got 'x'"),
        (["--batch", "progressive:0"], "start must be a whole number of at least 1, got 0"),
        (["--hold", "3"], "--hold needs minibatches: give their size with --batch"),
        (["--hold", "0", "--batch", "3"], "0 is not in the range x>=1"),
        (["--chains", "0"], "0 is not in the range x>=1"),
        (["--seed", "-1"], "-1 is not in the range x>=0"),
        (["--seed", "99999999999999999999"], "seed must be a whole number"),
        (["--precision", "float16"], "'float16' is not one of 'float32', 'float64'"),
        (["--record-every", "0"], "0 is not in the range x>=1"),
        (["--select-every", "0"], "0 is not in the range x>=1"),
        (["--select-every", "2"], "select_every needs at least 2 chains"),
        (["--select-fraction", "0.3"], "--select-fraction needs --select-every"),
        (
            ["--select-every", "2", "--chains", "3", "--select-fraction", "2"],
            "select_fraction must be above 0 and at most",
        ),
        (["--checkpoint-every", "0"], "checkpoint_every must be positive, got 0.0"),
        (["--run", "/proc/nowhere/run"], "cannot make /proc/nowhere/run: No such file or directory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_value_is_refused_with_name_rule_and_value(refusal, words, told):
    run = [] if "--run" in words else ["--run", "run"]
    assert told in refusal("train", "tiny:fit", *run, *words)
    assert not Path("run").exists()


def test_a_run_name_that_is_a_file_is_refused(refusal):
    Path("file").touch()
    assert "is a file" in refusal("train", "tiny:square", "--run", "file")
    assert "cannot make file/run: Not a directory" in refusal("train", "tiny:square", "--run", "file/run")


def test_a_start_that_is_no_number_says_what_to_try_and_leaves_nothing_behind(refusal):
    assert "the loss at the starting point is nan" in refusal("train", "tiny:nan")
    assert list(Path("runs").iterdir()) == []


def test_a_vector_loss_is_refused_in_the_users_terms(refusal):
    assert refusal("train", "tiny:vector", "--run", "run").startswith(
        "loss must return one number, got an array of shape"
    )
    assert not Path("run").exists()


@pytest.mark.parametrize("name", ["a[b]", "[/red] x", ":dog: 'q'", "with space"])
def test_any_name_of_a_folder_comes_out_as_it_is(cli, name):
    words = cli("train", "tiny:square", "--run", name, "--steps", 3).output
    assert words.splitlines()[-1].endswith(f"  {name}")
    assert cli("resume", name, "--trust", "--quiet").output.endswith(f"  {name}\n")


def test_annealing_chains_holds_and_selection_reach_the_settings(cli):
    words = ["--temperature", "1e-2:1e-5", "--batch", 5, "--hold", 2, "--chains", 4, "--select-every", 10, "--seed", 9]
    cli("train", "tiny:fit", "--run", "run", "--steps", 30, "--select-fraction", 0.5, "--quiet", *words)
    found = settings("run")
    anneal = {"name": "anneal", "start": 1e-2, "end": 1e-5, "steps": 30.0}
    assert found["algorithm"]["temperature"] == anneal
    assert found["plan"]["batches"] == {"name": "minibatch", "size": 5, "sampling": "shuffle", "hold": 2}
    assert (found["plan"]["chains"], found["plan"]["seed"]) == ([0, 1, 2, 3], 9)
    assert (found["plan"]["select_every"], found["plan"]["select_fraction"]) == (10, 0.5)
    assert len(rows("run")[-1]["loss"]) == 4


@pytest.mark.parametrize(
    ("words", "steps"),
    [([], 6), (["--batch", 5], 18), (["--batch", 5, "--hold", 2], 18), (["--batch", 12], 6)],
)
def test_epochs_count_passes_over_the_data(cli, monkeypatch, words, steps):
    # 12 samples: a pass takes one full batch, or 3 minibatches of 5; every move on a held one counts
    plans = []

    def stop_here(problem, algorithm, plan, **_):
        plans.append(plan)
        raise ValueError("far enough")

    monkeypatch.setattr("gradless.cli.follow.start_problem", stop_here)
    cli("train", "tiny:fit", "--run", "run", "--epochs", 6, *words, code=2)
    assert [plan.steps for plan in plans] == [steps]


def test_a_run_of_so_many_epochs_ends_where_its_record_says_so(cli):
    # 12 samples, 4 moves on each minibatch of 5: after 5 moves 25 samples, 2 epochs and a bit
    cli("train", "tiny:fit", "--run", "run", "--epochs", 2, "--batch", 5, "--hold", 4, "--record-every", 1)
    assert [row["epoch"] for row in rows("run")[-2:]] == [20 / 12, 25 / 12]


def test_a_target_metric_ends_the_run(cli):
    words = cli("train", "tiny:fit", "--run", "run", "--steps", 4000, "--target-metric", "error <= 0.3").output
    assert "(target reached)" in words
    assert rows("run")[-1]["error"] <= 0.3 < rows("run")[-2]["error"]


def test_time_is_a_budget_and_the_run_exits_with_0(cli):
    words = cli("train", "tiny:square", "--run", "run", "--time", "0.2s").output
    assert "(time is up)" in words
    with RunDirectory.open("run") as stored:
        newest = max(int(path.stem) for path in stored.checkpoints_path.iterdir())
    assert rows("run")[-1]["step"] <= newest


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_precision_is_that_of_the_parameters(cli, precision):
    cli("train", "tiny:square", "--run", "run", "--steps", 3, "--precision", precision, "--quiet")
    from gradless.records import load_newest

    assert str(load_newest(Path("run/checkpoints"), pytest.fail).tensors["state.x"].dtype) == precision


def test_sigma_auto_prints_what_it_tried_and_takes_the_best(cli):
    words = cli("train", "tiny:square", "--run", "run", "--steps", 60, "--sigma", "auto").output
    (best,) = [line for line in words.splitlines() if line.rstrip().endswith(" best")]
    assert settings("run")["algorithm"]["sigma"] == pytest.approx(float(best.split()[0]), rel=1e-2)  # shown to 3 digits
    assert sum("e-0" in line or "e+0" in line for line in words.splitlines()) >= 9
    (line,) = cli(
        "train", "tiny:square", "--run", "two", "--steps", 60, "--sigma", "auto", "--quiet"
    ).output.splitlines()
    assert line.endswith("  two")


def test_a_run_whose_loss_runs_away_is_told_and_drawn(cli, figures):
    words = ("train", "tiny:square", "--algorithm", "gd", "--learning-rate", 1e30, "--run", "run")
    told = cli(*words).output
    assert "diverged" in told
    assert "lower the learning rate" in told
    assert Path("run/training.png").stat().st_size > 1000


def test_a_full_disk_is_told_once_and_the_run_goes_on(cli, monkeypatch):
    real, calls = disk.write, []

    def full(fd, data):
        calls.append(len(data))
        if len(calls) > 12:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(fd, data)

    monkeypatch.setattr(disk, "write", full)
    monkeypatch.setattr("gradless.engine.session.ROUND_SECONDS", 0.0)
    words = cli("train", "tiny:square", "--run", "run", "--steps", 40, code=1).output
    assert words.count("No space left on device; training goes on") == 1
    assert "40 (all steps done)" in words
    assert "the end of the run could not be written" in words


def test_a_deleted_run_directory_is_told_and_exits_with_1(cli, figures, monkeypatch):
    from gradless.engine.disk.recording import Recording

    real = Recording.chunk_done

    def delete(recording, session, *more):
        if session.t >= 5:
            shutil.rmtree("run", ignore_errors=True)
        real(recording, session, *more)

    monkeypatch.setattr(Recording, "chunk_done", delete)
    words = cli("train", "tiny:square", "--run", "run", "--steps", 40, code=1).output
    assert "No such file or directory; training goes on" in words
    assert "40 (all steps done)" in words
    assert "the figures could not be drawn" in words


def test_figures_that_cannot_be_written_do_not_hide_the_result(cli, figures, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device", "training.png")

    monkeypatch.setattr("gradless.plots.save", full)
    words = cli("train", "tiny:square", "--run", "run", "--steps", 10, code=1).output
    assert "10 (all steps done)" in words
    assert "the figures could not be drawn" in words


def test_too_little_memory_is_told_in_a_line(refusal, monkeypatch):
    def greedy(*_, **__):
        raise MemoryError("Unable to allocate 8 TiB")

    monkeypatch.setattr("gradless.cli.follow.start_problem", greedy)
    monkeypatch.setattr("gradless.cli.errors.LIBRARIES", ("/",))  # this test's own file counts as ours
    told = refusal("train", "tiny:square", "--run", "run")
    assert told == "not enough memory: a smaller net, fewer samples or chains (Unable to allocate 8 TiB)"
    assert "parameters" in refusal("train", "sine", "--width", "1000000", "--run", "run")


def test_a_mistake_of_ours_keeps_its_trace(cli, monkeypatch):
    def wrong(*_, **__):
        return {}["nothing"]

    monkeypatch.setattr("gradless.runs.starting.prepare", wrong)
    monkeypatch.setattr("gradless.cli.errors.LIBRARIES", ("/",))  # this test's own file counts as ours
    with pytest.raises(KeyError, match="nothing"):
        cli("train", "tiny:square", "--run", "run")


def test_digits_trains_from_the_command_line(cli):
    words = cli("train", "digits", "--run", "run", "--steps", 20, "--algorithm", "mc").output
    assert "accuracy" in words
    assert np.isfinite(rows("run")[-1]["accuracy"])


def test_passes_over_no_data_are_refused_as_such(refusal):
    told = refusal("train", "tiny:square", "--batch", 3, "--epochs", 3)
    assert told.startswith("minibatches need data, got none")
