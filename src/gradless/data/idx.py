"""The IDX format of MNIST: a few big-endian header words, then the bytes of one array."""

import math

import numpy as np

UNSIGNED_BYTE = 0x08


def parse_idx(raw: bytes, name: str) -> np.ndarray:
    """Reads an array of unsigned bytes; the header is believed only where the file really has that many bytes."""
    if len(raw) < 4:
        raise ValueError(f"{name} must begin with a 4-byte IDX header, got {len(raw)} bytes")
    if raw[0] != 0 or raw[1] != 0 or raw[2] != UNSIGNED_BYTE:
        raise ValueError(f"{name} must be an IDX file of unsigned bytes (00 00 08 ..), got {raw[:4].hex(' ')}")
    num_axes = raw[3]
    start = 4 + 4 * num_axes
    if num_axes == 0 or len(raw) < start:
        raise ValueError(f"{name} must hold the lengths of its {num_axes} axes, one or more, got {len(raw)} bytes")
    shape = tuple(int.from_bytes(raw[i : i + 4], "big") for i in range(4, start, 4))
    expected = math.prod(shape)  # Python's integers do not overflow
    if len(raw) - start != expected:
        raise ValueError(f"{name} must hold {expected} bytes for its shape {shape}, got {len(raw) - start}")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape).copy()
