"""Normal random numbers by Threefry, the same as `jax.random.normal` gives, several times faster on a CPU.

Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) turns a key and a
counter into random bits. JAX compiles its rounds as a loop over whole arrays, which a CPU has to fetch from memory and
put back in every round. Written out, all rounds of a counter stay in registers, and fuse with what follows.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike

from gradless.apart import apart
from gradless.types import Key

NAME = "threefry2x32-20, inverse error function"  # a run says so: other numbers would make another chain
IMPLEMENTATION = "threefry2x32"  # JAX's name of it
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)
MAX_CHUNK = 1 << 16  # numbers that are drawn at once
WHOLE = 64  # lengths are rounded up to a multiple of it, so that XLA computes each thread's share with vectors
ALONE = 256  # numbers that are left to one thread
FEW_BYTES = 1 << 15  # of numbers: the loop draws so few for several steps at once, which XLA computes well


def threefry(key: tuple[jax.Array, jax.Array], counter: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Return two random words of 32 bits for each counter."""
    keys = (*key, key[0] ^ key[1] ^ PARITY)
    x, y = counter[0] + keys[0], counter[1] + keys[1]
    for group in range(5):
        for distance in ROTATIONS[group % 2]:
            x = x + y
            y = x ^ (lax.shift_left(y, np.uint32(distance)) | lax.shift_right_logical(y, np.uint32(32 - distance)))
        x, y = x + keys[(group + 1) % 3], y + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x, y


def root_key(seed: int) -> Key:
    """Return the key of a seed: one of Threefry, whichever generator JAX is set to."""
    words = np.asarray(
        [int(seed) >> 32, int(seed) & 0xFFFFFFFF], np.uint32
    )  # JAX itself would cut off the first without x64
    return jax.random.wrap_key_data(jnp.asarray(words), impl=IMPLEMENTATION)


def fold_in(key: Key, number: jax.Array) -> Key:
    """Return a new key from a key and a number: `jax.random.fold_in`."""
    return _key(*threefry(_words_of(key), (jnp.zeros((), jnp.uint32), jnp.asarray(number).astype(jnp.uint32))))


def split(key: Key) -> tuple[Key, Key]:
    """Return two new keys: `jax.random.split`."""
    zero, one = jnp.zeros((), jnp.uint32), jnp.ones((), jnp.uint32)
    return _key(*threefry(_words_of(key), (zero, zero))), _key(*threefry(_words_of(key), (zero, one)))


def _words_of(key: Key) -> tuple[jax.Array, jax.Array]:
    first, second = jax.random.key_data(key)
    return first, second


def _key(first: jax.Array, second: jax.Array) -> Key:
    return jax.random.wrap_key_data(jnp.stack([first, second]), impl=IMPLEMENTATION)


def words(key: Key, place: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the two words of every place in an array: its counter is the place."""
    return threefry(_words_of(key), (jnp.zeros_like(place), place))


def normal(key: Key, shape: Sequence[int], dtype: DTypeLike) -> jax.Array:
    """Return standard normal numbers, float32 or float64.

    XLA gives every thread its share of a vector, and where the length is odd it then computes number by number, ten
    times slower. So a few more are drawn than asked for; and where they are many, in chunks of a power of two, the last
    of which overlaps the one before.
    """
    size, dtype = math.prod(shape), np.dtype(dtype)
    if size >= 1 << 32:
        raise ValueError(f"x must have fewer than 2^32 elements, got {size}")
    if size * dtype.itemsize <= FEW_BYTES:
        return _few_normal(key, size, dtype).reshape(shape)
    chunk = min(MAX_CHUNK, 1 << ((size // 2).bit_length() - 1))

    def draw_chunk(number: jax.Array, drawn: jax.Array) -> jax.Array:
        begin = jnp.minimum(number.astype(np.uint32) * np.uint32(chunk), np.uint32(size - chunk))
        return lax.dynamic_update_slice(drawn, _normal_at(key, begin + lax.iota(np.uint32, chunk), dtype), (begin,))

    return lax.fori_loop(0, -(-size // chunk), draw_chunk, jnp.zeros(size, dtype)).reshape(shape)


def _few_normal(key: Key, size: int, dtype: np.dtype) -> jax.Array:
    whole = -(-size // WHOLE) * WHOLE
    if size == whole or size <= ALONE:
        return _normal_at(key, lax.iota(np.uint32, size), dtype)
    # Apart, or the compiler would make only those that are asked for.
    words = jax.random.key_data(key)
    return apart(lambda words: _normal_at(_key(*words), lax.iota(np.uint32, whole), dtype), words)[:size]


def _normal_at(key: Key, place: jax.Array, dtype: np.dtype) -> jax.Array:
    """Return the normal numbers of these places: the inverse error function of uniform numbers on (-1, 1)."""
    first, second = words(key, place)
    if dtype == np.float32:
        bits, one = (first ^ second) >> np.uint32(9), np.uint32(0x3F800000)
    else:
        wide = lax.shift_left(first.astype(np.uint64), np.uint64(32)) | second.astype(np.uint64)
        bits, one = wide >> np.uint64(12), np.uint64(0x3FF0000000000000)  # type: ignore[assignment]
    between_one_and_two = lax.bitcast_convert_type(bits | one, dtype)  # all mantissas are equally likely
    lowest = np.nextafter(dtype.type(-1), dtype.type(0))
    uniform = jnp.maximum(lowest, (between_one_and_two - dtype.type(1)) * dtype.type(2) + lowest)
    return dtype.type(math.sqrt(2)) * lax.erf_inv(uniform)
