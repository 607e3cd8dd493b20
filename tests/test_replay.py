"""The net at any step, rebuilt from the seed and the log of accepted steps, equals the net of the run bit for bit."""

import shutil

import jax
import numpy as np
import pytest

from gradless.engine.disk.stored import SELECTIONS
from gradless.records import AcceptedLog, DamagedError, RunError, list_checkpoints, load_newest, save
from gradless.records.accepted_blocks import read_blocks
from gradless.runs import named_parameters, standing

pytestmark = pytest.mark.usefixtures("quick_disk")


def bits(state):
    """The bytes of a state; a replay knows decisions, not losses, so the loss is left out."""
    return {name: np.asarray(leaf).tobytes() for name, leaf in state._asdict().items() if name != "loss"}


def states_of(result, num_chains):
    one = [result.state] if num_chains == 1 else None
    return one or [jax.tree.map(lambda leaf, place=place: leaf[place], result.state) for place in range(num_chains)]


def test_a_replay_equals_every_checkpoint(case, tmp_path, one_step_rounds):
    if not case.is_replayable:
        pytest.skip("no accepted steps")
    run = tmp_path / "run"
    case.train(run, steps=50, checkpoint_every=1e-9)
    result = case.resume(run, steps=60)
    kept = {int(path.stem) for path in list_checkpoints(run / "checkpoints")}
    checks = case.rebuild(run, result.steps, verify=True).checks
    assert {step for step, _ in checks} == kept
    assert {difference for _, difference in checks} == {None}


def test_a_replay_of_any_step_equals_a_run_of_that_many_steps(case):
    if not case.is_replayable:
        pytest.skip("no accepted steps")
    last = load_newest(case.whole / "checkpoints", pytest.fail).step
    for step in (0, 33, last):
        rebuilt = case.rebuild(case.whole, step)
        fresh = case.train(None, steps=max(step, 1)) if step else None
        if fresh is not None:
            expected = [bits(state) for state in states_of(fresh, len(rebuilt.states))]
            assert [bits(state) for state in rebuilt.states] == expected
        assert {int(state.n) for state in rebuilt.states if step == 0} <= {0}


def test_the_loss_of_a_rebuilt_net_is_that_of_the_run_on_all_data(case_named):
    case = case_named("amc")
    result = case.train(None)
    ((loss, metrics),) = standing(case.rebuild(case.whole, 60))
    assert loss == result.loss
    assert metrics["error"] == result.metrics["error"]


def test_rebuilt_parameters_are_named_as_in_the_model(case_named):
    alone = named_parameters(case_named("amc").rebuild(case_named("amc").whole, 60))
    assert {name: leaf.shape for name, leaf in alone.items()} == {"b": (4,), "v": (4, 1), "w": (1, 4)}
    several = named_parameters(case_named("amc chains").rebuild(case_named("amc chains").whole, 60))
    assert several["w"].shape == (3, 1, 4)


def test_a_long_log_is_handed_over_in_pieces(case_named, monkeypatch):
    case = case_named("amc")
    monkeypatch.setattr("gradless.engine.disk.replay.MAX_ACCEPTED", 3)
    assert [difference for _, difference in case.rebuild(case.whole, 60, verify=True).checks] == [None, None]


def test_the_log_is_read_once_however_many_chains_there_are(case_named, monkeypatch):
    case, passes = case_named("amc chains"), []
    whole = case.whole
    monkeypatch.setattr("gradless.records.accepted.read_blocks", lambda path: passes.append(path) or read_blocks(path))
    assert {difference for _, difference in case.rebuild(whole, 60, verify=True).checks} == {None}
    assert len(passes) == 1


def test_a_run_with_selection_whose_checkpoint_lacks_it_is_refused(case_named, tmp_path):
    case = case_named("amc selection")
    run = shutil.copytree(case.whole, tmp_path / "run")
    newest = load_newest(run / "checkpoints", pytest.fail)
    save(
        run / "checkpoints", 60, {name: one for name, one in newest.tensors.items() if name != SELECTIONS}, newest.meta
    )
    for go in (lambda: case.rebuild(run, 60), lambda: case.resume(run)):
        with pytest.raises(RunError, match=r"60.safetensors holds selections that no session made"):
            go()


def test_a_decision_that_the_run_did_not_make_is_found_out(case_named, tmp_path):
    case = case_named("amc")
    run = shutil.copytree(case.whole, tmp_path / "run")
    log = AcceptedLog(run / "accepted.log")
    flags = np.zeros(60, bool)
    flags[log.read(0)] = True
    flags[40] ^= True
    AcceptedLog.create(log.path)
    forged = AcceptedLog(log.path)
    forged.add(0, 0, flags)
    forged.sync()
    checks = dict(case.rebuild(run, 60, verify=True).checks)
    assert checks[0] is None
    assert checks[60] is not None


@pytest.mark.parametrize(
    "damage", [lambda raw: raw[:-2], lambda raw: raw[:25] + b"?" + raw[26:], lambda raw: b"", None]
)
def test_a_damaged_log_is_a_clear_error(case_named, tmp_path, damage):
    case = case_named("amc")
    run = shutil.copytree(case.whole, tmp_path / "run")
    log = run / "accepted.log"
    if damage is None:
        log.unlink()
    else:
        log.write_bytes(damage(log.read_bytes()))
    with pytest.raises(
        DamagedError, match=r"accepted.log (is whole only up to step|does not begin)|lacks accepted.log"
    ):
        case.rebuild(run, 60)


def test_a_step_beyond_the_last_checkpoint_is_refused(case_named):
    case = case_named("amc")
    for step in (-1, 61):
        with pytest.raises(RunError, match="step must be from 0 to 60"):
            case.rebuild(case.whole, step)


@pytest.mark.parametrize("forged", [None, np.zeros(2, np.int32), np.zeros(1, np.float32)])
def test_a_checkpoint_that_does_not_say_where_it_stands_is_refused(case_named, tmp_path, forged):
    case = case_named("amc")
    run = shutil.copytree(case.whole, tmp_path / "run")
    newest = load_newest(run / "checkpoints", pytest.fail)
    tensors = {name: one for name, one in newest.tensors.items() if name != "t"}
    save(run / "checkpoints", 60, tensors | ({} if forged is None else {"t": forged}), newest.meta)
    with pytest.raises(RunError, match="does not say where its chains stand"):
        case.rebuild(run, 60)
    with pytest.raises(RunError, match="does not fit the problem: t must be"):
        case.resume(run)


@pytest.mark.parametrize("name", ["gd", "adam minibatches"])
def test_a_gradient_baseline_has_nothing_to_replay(case_named, name):
    case = case_named(name)
    with pytest.raises(ValueError, match="has no accepted steps to replay"):
        case.rebuild(case.whole, 10)


def test_a_replay_leaves_the_run_as_it_is(case_named, tmp_path, contents):
    case = case_named("amc")
    run = shutil.copytree(case.whole, tmp_path / "run")
    before = contents(run)
    case.rebuild(run, 30, verify=True)
    assert contents(run) == before
