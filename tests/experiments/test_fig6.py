"""Fig. 6: the log-rank test by hand, verdicts on hand-made tables, and the whole of it at smoke scale."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from gradless.experiments import fig6
from gradless.experiments.claims import FAIL, NOT_DECIDED, PASS
from gradless.experiments.fig6.settings import DEEPER, DEPTHS, INITS, PAPER_RUNS, PAPER_STEPS, plan
from gradless.experiments.fig6.survival import induction_times, log_rank, p_value, survival
from gradless.experiments.tables import read_table, write_table
from gradless.experiments.workshop import Stopped, Workshop


def test_log_rank_by_hand():
    # Events at 1 and 3 in the first group, 2 and 4 in the second: of 4, 3, 2, 1 waiting runs 2, 1, 1, 0 are of the
    # first group. E = 1/2 + 1/3 + 1/2 + 0, V = 1/4 + 2/9 + 1/4 + 0.
    times, is_first = np.array([1.0, 3.0, 2.0, 4.0]), np.array([True, True, False, False])
    observed, expected, variance = log_rank(times, np.ones(4, bool), is_first)
    np.testing.assert_allclose([observed, expected, variance], [2, 4 / 3, 13 / 18], rtol=1e-14)
    # The square of 2/3 over 13/18 is 8/13, and a chi-squared of one degree exceeds that with probability 0.4328.
    assert p_value(np.array([observed, expected, variance])) == pytest.approx(0.4328, abs=1e-4)


def test_log_rank_with_ties_and_censoring():
    # Two events at time 1 among five waiting, three of them of the first group; the rest is never seen to train:
    # E = 2 * 3/5, V = 2 * 3/5 * 2/5 * (5 - 2)/(5 - 1).
    times, is_event = np.array([1.0, 9.0, 9.0, 1.0, 9.0]), np.array([True, False, False, True, False])
    parts = log_rank(times, is_event, np.arange(5) < 3)
    np.testing.assert_allclose(parts, [1, 1.2, 0.36], rtol=1e-14)


def test_without_events_nothing_is_shown():
    parts = log_rank(np.array([5.0, 5.0]), np.zeros(2, bool), np.array([True, False]))
    assert parts == (0, 0, 0)
    assert p_value(np.array(parts)) == 1


def test_survival_by_hand():
    # Of five runs two train at 1, one is stopped at 2, one of the two left trains at 3: 3/5, then half of it.
    times, is_event = np.array([1.0, 1.0, 2.0, 3.0, 4.0]), np.array([True, True, False, True, False])
    when, shares = survival(times, is_event)
    np.testing.assert_array_equal(when, [1, 3])
    np.testing.assert_allclose(shares, [3 / 5, 3 / 10], rtol=1e-14)
    assert survival(times, np.zeros(5, bool))[1].size == 0


def test_a_frozen_run_waits_to_the_end():
    rows = [line("aMC on", 16, "frozen", 700), line("aMC on", 16, "untrained", 1000), line("aMC on", 16, 30, 40)]
    times, seen = induction_times(rows, end=5000)
    np.testing.assert_array_equal(times, [5000, 1000, 30])
    np.testing.assert_array_equal(seen, [False, False, True])


def test_runs_that_froze_before_the_others_trained_have_waited_longer(tmp_path):
    # Half of aMC's runs train early and half freeze early; all of Adam's train, but later. From one start 3 of 10 runs
    # train first, 5 of them aMC's, and then 5 of 7, 2 of them aMC's; from the other 2 of 10, and 5 of 8, 3 of them
    # aMC's: E = 3/2 + 10/7 + 1 + 15/8 at each of four depths.
    ends = [1000] * 5 + ["frozen"] * 5
    rows = [line("aMC on", depth, end, 2000, chain) for depth in DEEPER for chain, end in enumerate(ends)]
    rows += [line("Adam", depth, 100_000, chain=chain) for depth in DEEPER for chain in range(10)]
    write_table(tmp_path / "runs.csv", rows)
    rate, waiting = (verdict for verdict in fig6.check(tmp_path, "paper") if verdict.claim == "F6c")
    assert rate.outcome == FAIL
    assert "all: O=20, E=23.2" in rate.measured
    assert all(f"all from {init}: p=" in rate.measured for init in INITS)
    assert waiting.measured.startswith("d=16: aMC 50,500, Adam 100,000")


def line(kind, depth, end, steps=PAPER_STEPS, chain=0, help_=""):
    """A row of runs.csv; `end` is a word, or the step at which the run trained."""
    is_trained = not isinstance(end, str)
    return {
        "kind": kind,
        "depth": depth,
        "init": INITS[chain % 2],  # the two starts in turn; of each the runs of a plan with two chains a block
        "block": chain // 4,
        "help": help_,
        "chain": chain // 2 % 2,
        "steps": end if is_trained else steps,
        "loss": 0.009 if is_trained else 0.046875,
        "induction": end if is_trained else "",
        "end": "trained" if is_trained else end,
        "is_over": 1,
    }


def paper_rows(adam_to=32, steps=PAPER_STEPS, num_helped=6):
    """What the paper says, as twenty runs of everything."""
    deepest = {"GD": 4, "aMC off": 4, "Adam": adam_to, "aMC on": 128}
    rows = []
    for chain in range(PAPER_RUNS):
        for depth in DEPTHS:
            for kind, limit in deepest.items():
                # Adam nucleates ten times later than aMC, and both later in deeper nets.
                end = (depth + chain) * (1000 if kind == "Adam" else 100) if depth <= limit else "untrained"
                rows.append(line(kind, depth, end, steps, chain))
            for help_ in ("skip", "layer_norm"):
                for kind in ("Adam", "aMC off"):
                    end = 500 if chain < num_helped else "untrained"
                    rows.append(line(kind, depth, end, steps, chain, help_))
        rows.append(line("aMC on", 256, 900 if chain == 3 else "untrained", steps, chain))
    return rows


def rows_frozen_at_256():
    """The same, with no net of depth 256 that trains."""
    shallower = [row for row in paper_rows() if row["depth"] != 256]
    return shallower + [line("aMC on", 256, "frozen", 9, chain) for chain in range(10)]


def paper_outputs(deep_adam=0.0):
    """Outputs as the paper shows them: a smooth GD, sharp others, and one that learns the deep net."""
    theta = np.linspace(0, 1, 200)
    target = np.where((theta > 0.5) & (theta < 0.75), 0.5, 0.0)
    smooth = 0.4 * np.exp(-(((theta - 0.625) / 0.2) ** 2))
    shallow = {"GD": smooth, "Adam": target, "aMC off": smooth, "aMC on": target}
    flat = np.full_like(theta, 0.125)
    deep = {"GD": flat, "Adam": flat + deep_adam * target, "aMC off": flat, "aMC on": target}
    return [
        {"kind": kind, "depth": depth, "theta": t, "target": f, "output": o}
        for depth, says in ((4, shallow), (64, deep))
        for kind, values in says.items()
        for t, f, o in zip(theta, target, values, strict=True)
    ]


def judged(tmp_path, rows, outputs, scale="paper"):
    write_table(tmp_path / "runs.csv", rows)
    if outputs:
        write_table(tmp_path / "outputs.csv", outputs)
    verdicts = fig6.check(tmp_path, scale)
    assert {verdict.claim for verdict in verdicts} == {"F6a", "F6b", "F6c", "F6d", "F6e"}
    return {(verdict.claim, verdict.says): verdict.outcome for verdict in verdicts}


def failing(verdicts):
    assert NOT_DECIDED not in verdicts.values()
    return sorted(claim for (claim, _), outcome in verdicts.items() if outcome == FAIL)


def test_the_papers_own_results_pass(tmp_path):
    assert set(judged(tmp_path, paper_rows(), paper_outputs()).values()) == {PASS}


@pytest.mark.parametrize(
    ("rows", "outputs", "claims"),
    [
        (paper_rows(adam_to=64), paper_outputs(), ["F6a"]),
        (paper_rows(), paper_outputs(deep_adam=1.0), ["F6b"]),
        (paper_rows(num_helped=4), paper_outputs(), ["F6e", "F6e"]),
        (rows_frozen_at_256(), paper_outputs(), ["F6d"]),
    ],
)
def test_other_results_fail(tmp_path, rows, outputs, claims):
    assert failing(judged(tmp_path, rows, outputs)) == claims


def test_that_a_depth_is_not_learnt_is_known_from_as_many_runs_as_the_papers_best_is_of(tmp_path):
    adam = ("F6a", "Adam trains to depth 32, no deeper")

    def fewer(rows, depth):
        return [row for row in rows if row["block"] < 3 or (row["kind"], row["depth"]) != ("Adam", depth)]

    rows = paper_rows(adam_to=16)
    assert judged(tmp_path, rows, [])[adam] == FAIL
    few = fewer(rows, 32)
    assert judged(tmp_path, few, [])[adam] == NOT_DECIDED  # the best of twenty may still train at 32
    assert judged(tmp_path, [*few, line("Adam", 32, 900, chain=19)], [])[adam] == PASS
    assert judged(tmp_path, fewer(paper_rows(), 64), [])[adam] == NOT_DECIDED  # or at 64


def test_equal_rates_fail(tmp_path):
    rows = [row for row in paper_rows() if row["kind"] != "Adam" or row["help"]]
    rows += [{**row, "kind": "Adam"} for row in rows if row["kind"] == "aMC on" and row["depth"] in DEPTHS]
    assert failing(judged(tmp_path, rows, paper_outputs())) == ["F6a", "F6c"]


def test_runs_from_different_starts_are_not_compared(tmp_path):
    """Of aMC the runs from one start train, of Adam only those from the other are there: neither claim is decided."""
    rows = [row for row in paper_rows() if row["help"] or row["kind"] not in ("aMC on", "Adam")]
    rows += [line("aMC on", depth, depth, chain=2 * chain) for depth in DEEPER for chain in range(5)]
    rows += [line("Adam", depth, "untrained", chain=2 * chain + 1) for depth in DEEPER for chain in range(5)]
    write_table(tmp_path / "runs.csv", rows)
    verdicts = fig6.check(tmp_path, "paper")
    assert {verdict.outcome for verdict in verdicts if verdict.claim == "F6c"} == {NOT_DECIDED}
    (of_adam,) = (verdict for verdict in verdicts if verdict.says.startswith("Adam trains to depth"))
    assert of_adam.outcome == NOT_DECIDED  # that it trains nowhere is not known from one start


def test_short_runs_decide_only_what_trained(tmp_path):
    verdicts = judged(tmp_path, paper_rows(steps=1000, num_helped=4), paper_outputs(), "quick")
    assert FAIL not in verdicts.values()
    passed = [claim for (claim, _), outcome in verdicts.items() if outcome == PASS]
    assert passed == ["F6a", "F6d"]  # that aMC with signal norm trains to 128, and to 256
    assert set(judged(tmp_path, paper_rows(), paper_outputs(), "smoke").values()) == {NOT_DECIDED}


def test_outputs_are_judged_at_the_end(tmp_path):
    rows = [{**row, "is_over": 0} for row in paper_rows()]
    undecided = [claim for (claim, _), outcome in judged(tmp_path, rows, paper_outputs()).items() if outcome != PASS]
    assert undecided == ["F6b"]
    # Four runs of a method are too few to show the best of them.
    few = [row for row in paper_rows() if row["block"] == 0 or (row["kind"], row["depth"]) != ("Adam", 64)]
    outcome = {claim: found for (claim, _), found in judged(tmp_path, few, paper_outputs()).items()}
    assert outcome["F6b"] == NOT_DECIDED


@pytest.mark.parametrize(
    ("trained", "frozen", "outcome"),
    [(5, 0, PASS), (4, 0, NOT_DECIDED), (4, 5, NOT_DECIDED), (4, 6, FAIL), (0, 6, FAIL), (5, 5, PASS), (5, 9, PASS)],
)
def test_half_of_ten_runs_is_known_before_the_last_when_the_others_cannot_change_it(tmp_path, trained, frozen, outcome):
    others = [row for row in paper_rows() if (row["help"], row["depth"], row["kind"]) != ("layer_norm", 128, "aMC off")]
    ends = [500] * trained + ["frozen"] * frozen
    rows = others + [line("aMC off", 128, end, 9, chain, "layer_norm") for chain, end in enumerate(ends)]
    of_amc = [found for (claim, says), found in judged(tmp_path, rows, []).items() if claim == "F6e" and "aMC" in says]
    assert of_amc == [outcome]


def test_smoke_scale_runs_and_redraws(tmp_path):
    scale = fig6.SCALES["smoke"]
    fig6.run(tmp_path, scale, Workshop(tmp_path, lambda words: None))
    rows = read_table(tmp_path / "runs.csv")
    assert len(rows) == len(list(plan(scale))) == 5
    assert all(row["steps"] == scale.steps and 0 < row["loss"] < 0.1 for row in rows)
    # The outputs are those of the net whose loss is stored: their mean square error is that loss again, up to rounding.
    mine = [row for row in read_table(tmp_path / "outputs.csv") if (row["kind"], row["depth"]) == ("aMC on", 4)]
    error = np.mean([(row["output"] - row["target"]) ** 2 for row in mine])
    loss = next(row["loss"] for row in rows if (row["kind"], row["depth"]) == ("aMC on", 4))
    assert error == pytest.approx(loss, rel=1e-12)
    assert {verdict.outcome for verdict in fig6.check(tmp_path, "smoke")} == {NOT_DECIDED}
    (picture,) = fig6.draw(tmp_path)
    drawn = picture.with_suffix(".svg").read_text()
    picture.unlink()
    fig6.draw(tmp_path)  # from the files alone
    assert picture.stat().st_size > 10_000
    assert len(picture.with_suffix(".svg").read_text()) == pytest.approx(len(drawn), rel=0.01)


def test_a_reproduction_goes_on_from_its_tables_alone(tmp_path, first_asked_for):
    scale, path = fig6.SCALES["smoke"], tmp_path / "runs.csv"
    fig6.run(tmp_path, scale, Workshop(tmp_path, lambda words: None))
    tables = {path: path.read_text() for path in tmp_path.glob("*.csv")}
    for name in ("aMC-on-4-gaussian-0", "GD-2-gaussian-0"):
        shutil.rmtree(tmp_path / "runs" / name)
    (tmp_path / "runs" / "Adam-2-gaussian-0" / "finished").unlink()  # stopped here, and finished elsewhere
    assert first_asked_for(fig6, tmp_path, scale) is None
    assert first_asked_for(fig6, tmp_path, replace(scale, blocks=2)) == "aMC-on-2-gaussian-1"
    assert {path: path.read_text() for path in tables} == tables
    write_table(path, [row | {"is_over": int(row["kind"] != "GD")} for row in read_table(path)])
    assert first_asked_for(fig6, tmp_path, scale) == "GD-2-gaussian-0"
    path.unlink()  # what is stored is read again, and what is only drawn of the others goes
    assert first_asked_for(fig6, tmp_path, scale) == "aMC-on-2-gaussian-0"
    assert {row["kind"] for row in read_table(path)} == {"aMC on", "Adam", "aMC off"}


def test_what_there_is_so_far_is_saved_when_time_runs_out(tmp_path):
    with pytest.raises(Stopped):
        fig6.run(tmp_path, fig6.SCALES["paper"], Workshop(tmp_path, lambda words: None, deadline=0.0))
    (first, *_rest) = read_table(tmp_path / "runs.csv")
    assert (first["kind"], first["depth"], first["end"]) == ("aMC on", 2, "untrained")
    assert {verdict.outcome for verdict in fig6.check(tmp_path, "paper")} == {NOT_DECIDED}
