"""A plain aMC in JAX, as its users write it: the yardstick for what gradless adds.

One flat vector by `ravel_pytree`, `jax.random.normal`, samples along the first axis, one compiled loop. Nothing here is
shared with gradless but the net's definition, so that what makes gradless fast does not make this fast too.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from gradless.bench.workloads import Workload
from gradless.models import MLP
from gradless.models.mlp import ACTIVATIONS


class Carry(NamedTuple):
    """What goes from step to step."""

    key: jax.Array
    x: jax.Array
    loss: jax.Array
    lam: Any  # a number, or one for each parameter with signal norm
    mu: jax.Array
    sigma: jax.Array
    n_cr: jax.Array


class ScannedChain:
    """A chain of aMC that makes so many steps when called."""

    def __init__(self, workload: Workload):
        settings, data = workload.settings, jax.tree.map(jnp.asarray, workload.data)
        x, self.unravel = ravel_pytree(jax.tree.map(jnp.asarray, workload.start()))
        self.workload, self.data = workload, data
        self.epsilon, self.n_s = settings.get("epsilon", 0.0), settings.get("n_s", 100)
        self.has_lambda = bool(settings.get("signal_norm", False))
        if self.has_lambda and not isinstance(workload.net, MLP):
            raise NotImplementedError("signal norm is written out for dense nets only")
        loss, lam = jax.jit(self.evaluate)(x, self.batch(jax.random.key(1), data))
        zero = jnp.zeros_like(x)
        self.carry = Carry(
            jax.random.key(0), x, loss, lam, zero, jnp.asarray(settings["sigma"], x.dtype), jnp.zeros((), jnp.int32)
        )

    @property
    def loss(self) -> float:
        """U(x), on the batch of the last step."""
        return float(self.carry.loss)

    def __call__(self, steps: int) -> None:
        """Make so many steps."""
        self.carry = jax.block_until_ready(self.advance(self.carry, self.data, steps))

    @partial(jax.jit, static_argnums=0)
    def advance(self, carry: Carry, data: Any, steps: jax.Array) -> Carry:
        """Make steps in one compiled loop; its length is data, where `lax.scan` would compile again for each."""
        return lax.fori_loop(0, steps, lambda _, carry: self.step(carry, data), carry)

    def batch(self, key: jax.Array, data: Any) -> Any:
        """Return the samples of a step."""
        if self.workload.batch is None:
            return data
        chosen = jax.random.randint(key, (self.workload.batch,), 0, len(jax.tree.leaves(data)[0]))
        return jax.tree.map(lambda array: array[chosen], data)

    def evaluate(self, x: jax.Array, batch: Any) -> tuple[jax.Array, Any]:
        """Return U(x), and lambda for each parameter."""
        params, loss = self.unravel(x), self.workload.problem.loss
        if self.has_lambda:
            return loss(params, batch), ravel_pytree(_lambda(self.workload.net, params, batch[0]))[0]
        return (loss(params) if batch is None else loss(params, batch)), jnp.ones((), x.dtype)

    def step(self, carry: Carry, data: Any) -> Carry:
        """Make one step."""
        key, key_noise, key_batch = jax.random.split(carry.key, 3)
        batch, loss, lam = self.batch(key_batch, data), carry.loss, carry.lam
        if self.workload.batch is not None:
            loss, lam = self.evaluate(carry.x, batch)
        eps = carry.mu + lam * carry.sigma * jax.random.normal(key_noise, carry.x.shape, carry.x.dtype)
        loss_new, lam_new = self.evaluate(carry.x + eps, batch)
        is_accepted = loss_new <= loss  # false for NaN

        n_cr = carry.n_cr + 1
        is_stuck = n_cr == self.n_s
        mu_stayed = jnp.where(is_stuck, 0.0, carry.mu)
        return Carry(
            key,
            jnp.where(is_accepted, carry.x + eps, carry.x),
            jnp.where(is_accepted, loss_new, loss),
            jnp.where(is_accepted, lam_new, lam),
            jnp.where(is_accepted, carry.mu + self.epsilon * (eps - carry.mu), mu_stayed),
            jnp.where(~is_accepted & is_stuck, 0.95 * carry.sigma, carry.sigma),
            jnp.where(is_accepted | is_stuck, 0, n_cr),
        )


def _lambda(net: Any, params: Any, inputs: jax.Array) -> Any:
    """Return lambda for every weight and bias of a dense net. Paper: Eqs. (17) and (18)."""
    h, scales = inputs, []
    for layer in params["layers"]:
        scale = jnp.mean(jnp.sum(h**2, axis=1)) ** -0.5
        scales.append({"bias": jnp.ones_like(layer["bias"]), "weight": jnp.full_like(layer["weight"], scale)})
        h = ACTIVATIONS[net.activation].respond(h @ layer["weight"] + layer["bias"])
    return {"layers": scales}
