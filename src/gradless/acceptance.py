"""The Metropolis rule. Nothing else in gradless compares two losses, but its twin in `gradless.pytorch`."""

import jax
import jax.numpy as jnp


def accept(loss: jax.Array, loss_new: jax.Array, temperature: jax.Array | float, xi: jax.Array | None) -> jax.Array:
    """Return whether a move from `loss` to `loss_new` is accepted at `temperature`.

    The paper accepts if xi < exp((U - U')/T) with xi uniform on (0, 1]. Taking logarithms, that is
    U' <= U + T (-ln xi), and T = 0 is its plain limit U' <= U, ties included. `xi` may be None when T is 0.

    Paper: Sec. III A, step 2 and its footnote.
    Differs: a loss that is not finite is never accepted; at T > 0 an exact tie with xi = 1 is. A schedule that passes
    below T = 0, or to NaN (a root of what is below 0), stays at 0.
    """
    allowance = 0.0 if xi is None else -jnp.where(temperature > 0, temperature, 0) * jnp.log(xi).astype(loss.dtype)
    return jnp.isfinite(loss_new) & (loss_new <= loss + allowance)
