"""The blocks of accepted.log: for a stretch of steps of one chain, which of them were accepted.

A block is a header (CRC32 of all that follows it in the block, coding, chain, first step, number of steps, payload
length) and a payload, the shorter of two codings:
  gaps    for each accepted step the number of rejected steps before it, as a varint (7 bits a byte, low first);
  bitmap  one bit per step, low first.
A block of no steps says that what lies between the chain's last block and its first step was lost.
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .errors import DamagedError, NewerFormatError

MAGIC = b"gradless accepted\n"
VERSION = 1
FILE_HEADER = MAGIC + bytes([VERSION])
MAX_BLOCK_STEPS = 1 << 16  # bounds the memory one block can ask for
MAX_CHAINS = 1 << 20
MAX_STEP = 1 << 62

_HEADER = struct.Struct("<IBIQII")
_GAPS, _BITMAP = 0, 1

Flags = NDArray[np.bool_]


class Block(NamedTuple):
    """A decoded block and where it lies in the file."""

    chain: int
    first_step: int
    flags: Flags
    start: int
    end: int

    @property
    def end_step(self) -> int:
        """The first step after the block."""
        return self.first_step + len(self.flags)


def encode(chain: int, first_step: int, flags: Flags) -> bytes:
    """The bytes of one block."""
    gaps = _encode_gaps(flags)
    bitmap = np.packbits(flags, bitorder="little").tobytes()
    coding, payload = (_GAPS, gaps) if len(gaps) < len(bitmap) else (_BITMAP, bitmap)
    header = _HEADER.pack(0, coding, chain, first_step, len(flags), len(payload))[4:]
    return struct.pack("<I", zlib.crc32(header + payload)) + header + payload


def read_blocks(path: Path) -> Iterator[Block]:
    """The blocks of a log in file order, ending before the first torn or damaged one; one block in memory at a time."""
    ends: dict[int, int] = {}
    with path.open("rb") as file:
        _check_file_header(path, file.read(len(FILE_HEADER)))
        start = len(FILE_HEADER)
        while len(header := file.read(_HEADER.size)) == _HEADER.size:
            crc, coding, chain, first_step, num_steps, length = _HEADER.unpack(header)
            # Checked before the payload is read, so that a wrong length cannot ask for memory.
            if not _is_possible(coding, chain, first_step, num_steps, length):
                return
            payload = file.read(length)
            if len(payload) < length or zlib.crc32(header[4:] + payload) != crc:
                return
            flags = _decode(coding, payload, num_steps)
            if flags is None or first_step < ends.get(chain, 0):
                return
            end = start + _HEADER.size + length
            yield Block(chain, first_step, flags, start, end)
            ends[chain] = first_step + num_steps
            start = end


def _check_file_header(path: Path, header: bytes) -> None:
    if len(header) < len(FILE_HEADER) or not header.startswith(MAGIC):
        raise DamagedError(f"{path} does not begin as a log of accepted steps: restore it from a copy")
    if header[-1] > VERSION:
        raise NewerFormatError(f"{path} has format {header[-1]}, this gradless reads {VERSION}: use a newer gradless")
    if header[-1] != VERSION:
        raise DamagedError(f"{path} has the unknown format {header[-1]}: restore it from a copy")


def _is_possible(coding: int, chain: int, first_step: int, num_steps: int, length: int) -> bool:
    bitmap_length = (num_steps + 7) // 8
    return (
        num_steps <= MAX_BLOCK_STEPS
        and chain < MAX_CHAINS
        and first_step <= MAX_STEP
        and ((coding == _BITMAP and length == bitmap_length) or (coding == _GAPS and length < bitmap_length))
    )


def _encode_gaps(flags: Flags) -> bytes:
    gaps = np.diff(np.flatnonzero(flags), prepend=-1) - 1
    sevens = np.stack([gaps & 127, (gaps >> 7) & 127, gaps >> 14], axis=1)  # a gap is below 2^16
    length = 1 + (gaps >= 1 << 7) + (gaps >= 1 << 14)
    place = np.arange(3)
    continued = (place + 1 < length[:, None]) * 128
    return (sevens + continued)[place < length[:, None]].astype(np.uint8).tobytes()


def _decode(coding: int, payload: bytes, num_steps: int) -> Flags | None:
    """The flags, or None if the payload is not one that `encode` writes."""
    raw = np.frombuffer(payload, dtype=np.uint8)
    if coding == _BITMAP:
        bits = np.unpackbits(raw, bitorder="little").view(np.bool_)
        return None if bits[num_steps:].any() else bits[:num_steps]
    flags = np.zeros(num_steps, dtype=np.bool_)
    if not len(raw):
        return flags
    is_last = raw < 128
    begins = np.flatnonzero(np.concatenate([[True], is_last[:-1]]))
    place = np.arange(len(raw)) - np.repeat(begins, np.diff(begins, append=len(raw)))
    if not is_last[-1] or place.max() > 2:
        return None
    gaps = np.add.reduceat((raw & 127).astype(np.int64) << (7 * place), begins)
    steps = np.cumsum(gaps + 1) - 1
    if steps[-1] >= num_steps:
        return None
    flags[steps] = True
    return flags
