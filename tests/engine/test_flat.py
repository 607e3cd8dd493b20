"""Any pytree as one flat vector x and back."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gradless.engine.flat import ByIdentity, Flattening, which_are_trained

TREE = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": [np.float32(7), 8.0],
    "steps": np.array([1, 2]),
    "none": None,
    "flag": True,
}


def test_x_holds_the_floating_point_leaves_in_the_order_of_the_tree():
    flattening = Flattening.of(TREE)
    x = flattening.flatten(TREE)
    np.testing.assert_array_equal(x, [7, 8, 0, 1, 2, 3, 4, 5])  # keys in alphabetical order: b, then w
    assert x.dtype == jnp.float32
    assert flattening.num_parameters == 8
    assert flattening.sizes == [1, 1, 6]


def test_unflattening_gives_the_tree_back_and_leaves_the_rest_alone():
    flattening = Flattening.of(TREE)
    tree = flattening.unflatten(2 * flattening.flatten(TREE))
    np.testing.assert_array_equal(tree["w"], 2 * TREE["w"])
    assert [float(b) for b in tree["b"]] == [14, 16]
    np.testing.assert_array_equal(tree["steps"], TREE["steps"])
    assert tree["none"] is None
    assert tree["flag"] is True
    assert jax.tree.structure(tree) == jax.tree.structure(TREE)


def test_the_gradient_with_respect_to_x_is_one_concatenation():
    """That of slices would pad every leaf to the length of x and add them all up."""
    flattening = Flattening.of(TREE)
    x = flattening.flatten(TREE)
    gradient = jax.grad(lambda x: sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(flattening.unflatten(x))[:3]))
    names = [eqn.primitive.name for eqn in jax.make_jaxpr(gradient)(x).jaxpr.eqns]
    assert names.count("concatenate") == 1
    assert "pad" not in names


def test_a_float64_x_of_numpy_stays_one():
    tree = Flattening.of(TREE, "float64").unflatten(np.arange(8.0))
    assert (type(tree["w"]), tree["w"].dtype) == (np.ndarray, np.float64)


def test_leaves_of_different_types_come_back_in_their_own():
    tree = {"a": jnp.ones(2, jnp.bfloat16), "b": jnp.ones(3, jnp.float32)}
    flattening = Flattening.of(tree)
    assert flattening.dtype == jnp.float32
    back = flattening.unflatten(flattening.flatten(tree))
    assert (back["a"].dtype, back["b"].dtype) == (jnp.bfloat16, jnp.float32)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_precision_overrides_the_types_of_the_leaves(precision):
    with jax.enable_x64(True):
        flattening = Flattening.of({"a": np.ones(2, np.float64), "b": np.ones(3, np.float32)}, precision)
        x = flattening.flatten({"a": np.ones(2, np.float64), "b": np.ones(3, np.float32)})
        assert x.dtype == precision
        assert all(leaf.dtype == precision for leaf in jax.tree.leaves(flattening.unflatten(x)))


def test_float64_parameters_are_seen_as_such_whatever_the_mode_of_jax():
    assert Flattening.of(np.ones(2, np.float64)).dtype == np.float64


def test_two_trees_of_the_same_layout_share_a_program():
    one, other = (Flattening.of({"w": np.full((2, 3), value, np.float32)}) for value in (1, 2))
    assert one == other
    assert hash(one) == hash(other)
    assert one != Flattening.of({"w": np.ones((3, 2), np.float32)})
    assert one != Flattening.of({"w": np.ones((2, 3), np.float64)})


def test_an_untrained_array_that_has_changed_is_seen():
    mask = np.array([1, 1, 0])
    before, same = (Flattening.of({"w": np.ones(3, np.float32), "mask": mask}) for _ in range(2))
    assert before == same
    assert hash(before) == hash(same)
    mask[:] = [0, 0, 1]
    assert before != Flattening.of({"w": np.ones(3, np.float32), "mask": mask})
    np.testing.assert_array_equal(before.unflatten(jnp.ones(3))["mask"], [1, 1, 0])


@pytest.mark.parametrize(
    "other",
    [TREE, TREE | {"w": np.ones((2, 3), np.float32), "b": [0.0, 1.0]}, TREE | {"steps": jnp.array([1, 2])}],
)
def test_chains_may_differ_in_what_is_trained(other):
    Flattening.of(TREE).check(other)


def test_chains_may_differ_in_keys_and_in_what_is_no_number():
    first, other = ({"w": 1.0, "key": jax.random.key(seed), "name": str(seed), "f": lambda: 0} for seed in (0, 1))
    Flattening.of(first).check(other)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (TREE | {"w": np.ones((3, 2), np.float32)}, "params must have the same shapes in every chain, got .* and "),
        (TREE | {"more": 1}, "params must have the same shapes in every chain"),
        (TREE | {"steps": np.array([1, 3])}, r"same untrained numbers in every chain, got \[1 2\] and \[1 3\]: make"),
        (TREE | {"flag": False}, "same untrained numbers in every chain, got True and False"),
    ],
)
def test_chains_that_differ_in_more_are_refused(other, message):
    with pytest.raises(ValueError, match=message):
        Flattening.of(TREE).check(other)


@pytest.mark.parametrize(
    ("leaf", "message"),
    [
        (np.ma.masked_array([1.0, 2.0], [True, False]), r"got a masked one: fill it, as by array\.filled\(0\)"),
        (np.ones(3, np.longdouble), r"params must be float64 at most, got \w+: convert it, as by array\.astype"),
        (np.longdouble(1), "params must be float64 at most"),
    ],
)
def test_arrays_that_jax_does_not_know_are_refused(leaf, message):
    with pytest.raises(ValueError, match=message):
        Flattening.of({"a": 1.0, "b": leaf})


@pytest.mark.parametrize("params", [{"n": np.arange(3)}, {}, None, [True, 2, "three"]])
def test_params_without_floating_point_numbers_are_refused(params):
    with pytest.raises(ValueError, match="params must hold at least one floating-point array, got none"):
        Flattening.of(params)


@pytest.mark.parametrize(
    ("leaf", "expected"),
    [
        (1.0, True),
        (np.ones(2), True),
        (jnp.ones(2, jnp.bfloat16), True),
        (1, False),
        (True, False),
        ("word", False),
        (np.arange(2), False),
        (np.ones(2, complex), False),
    ],
)
def test_only_floating_point_leaves_are_trained(leaf, expected):
    assert which_are_trained(leaf) == [expected]
    assert which_are_trained({"a": [leaf, None], "b": (leaf,)}) == [expected] * 2


def test_a_plain_number_in_a_module_is_a_setting_of_it():
    net = [eqx.nn.Linear(2, 1, key=jax.random.key(0)), eqx.nn.Dropout(0.5), {"scale": 2.0}]
    assert which_are_trained(net) == [True, True, False, False, True]  # p and inference of the dropout
    flattening = Flattening.of(net)
    assert flattening.num_parameters == 4
    back = flattening.unflatten(flattening.flatten(net) + 1)
    assert (back[1].p, back[2]["scale"]) == (0.5, 3)
    with pytest.raises(ValueError, match="got none: a plain number in a module is a setting of it"):
        Flattening.of(eqx.nn.Dropout(0.5))


def test_a_holder_is_equal_only_to_a_holder_of_the_same_object():
    thing = [1]
    assert ByIdentity(thing) == ByIdentity(thing)
    assert hash(ByIdentity(thing)) == hash(ByIdentity(thing))
    assert ByIdentity(thing) != ByIdentity([1])
    assert ByIdentity(thing) != thing
