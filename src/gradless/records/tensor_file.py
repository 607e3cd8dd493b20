"""One checkpoint as one safetensors file: text and tensors, every byte under a SHA-256 checksum.

The layout is that of safetensors (8 bytes of header length, a JSON header, the tensors back to back), and its library
reads our files. We read and write it ourselves for three reasons: its numpy side has no bfloat16, a file must be
checked before memory is given to it, and tensors go to the disk without a copy in between.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from . import json_text
from .durable import write_atomic
from .errors import DamagedError

Tensor = NDArray[Any]

# Bounds on the header, because a parsed one takes more memory than its text: its bytes, and how many commas and
# brackets it has outside strings (a tensor needs some eight).
MAX_HEADER_BYTES = 1 << 20
MAX_HEADER_MARKS = 1 << 16
MAX_DIMENSIONS = 32
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_NO_SUM = "0" * 64
_ALIGNMENT = 64
_DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
    "C64": np.dtype("<c8"),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


class TensorFile(NamedTuple):
    """A file whose checksum is right; what it says about its tensors is checked only by `tensors`."""

    text: dict[str, str]
    entries: dict[str, Any]
    data: NDArray[np.uint8]

    def tensors(self) -> dict[str, Tensor]:
        """The tensors, as views of the data that was read."""
        _check_entries(self.entries, len(self.data))
        return {name: _tensor(name, self.data, entry) for name, entry in self.entries.items()}


def write(path: Path, tensors: Mapping[str, Tensor], text: Mapping[str, str]) -> None:
    """Write tensors and text durably, in one rename. The checksum is of the file with 64 zeros in its place."""
    arrays = {name: _storable(name, tensors[name]) for name in tensors}
    # Widest first, so that every tensor is aligned; then by name, so that equal states give equal files.
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header: dict[str, Any] = {"__metadata__": {**text, "sha256": _NO_SUM}}
    offset = 0
    for name in order:
        array = arrays[name]
        span = [offset, offset + array.nbytes]
        header[name] = {"dtype": _NAMES[array.dtype], "shape": list(array.shape), "data_offsets": span}
        offset = span[1]
    head = _framed(header)
    digest = hashlib.sha256(head)
    data = [array.reshape(-1).view(np.uint8).data for array in (arrays[name] for name in order) if array.nbytes]
    for part in data:
        digest.update(part)
    header["__metadata__"]["sha256"] = digest.hexdigest()
    write_atomic(path, [_framed(header), *data])


def check_text(text: Mapping[str, str]) -> None:
    """Refuse more text than `write` would take."""
    _framed({"__metadata__": {**text, "sha256": _NO_SUM}})


def read(path: Path) -> TensorFile:
    """Read a file and check its checksum; this never takes more memory than the file's size and that of one header."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        frame = file.read(8)
        length = int.from_bytes(frame, "little")
        if len(frame) < 8 or length > min(size - 8, MAX_HEADER_BYTES):
            raise DamagedError(f"its header is said to be {length} bytes long in a file of {size}")
        raw = file.read(length)
        text, entries = _parsed(raw)
        try:
            data = np.empty(size - 8 - length, dtype=np.uint8)
        except MemoryError:
            raise DamagedError(f"its {size} bytes are more than the memory there is") from None
        if file.readinto(data.data) != len(data):
            raise DamagedError("it ends too early")
    found = text.pop("sha256")
    digest = hashlib.sha256((frame + raw).replace(found.encode(), _NO_SUM.encode(), 1))
    digest.update(data.data)
    if digest.hexdigest() != found:
        raise DamagedError("its checksum does not match its contents")
    return TensorFile(text, entries, data)


def _storable(name: str, tensor: Tensor) -> Tensor:
    array = np.asarray(tensor, order="C")
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    if array.dtype not in _NAMES:
        raise ValueError(f"tensor {name} must be one of {', '.join(_NAMES.values())}, got {array.dtype}")
    if name == "__metadata__" or array.ndim > MAX_DIMENSIONS:
        raise ValueError(f"tensor {name} must have another name or at most {MAX_DIMENSIONS} dimensions")
    return array


def _framed(header: dict[str, Any]) -> bytes:
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    if len(text) > MAX_HEADER_BYTES or _num_marks(text) > MAX_HEADER_MARKS:
        limits = f"{MAX_HEADER_BYTES} bytes and {MAX_HEADER_MARKS // 8} tensors"
        raise ValueError(f"names and text of a checkpoint must be under {limits}, got {len(text)} bytes")
    return len(text).to_bytes(8, "little") + text


def _num_marks(header: bytes) -> int:
    return sum(_STRING.sub(b"", header).count(mark) for mark in (b",", b"[", b"{"))


def _parsed(raw: bytes) -> tuple[dict[str, str], dict[str, Any]]:
    """The text of a header and what it says about the tensors."""
    if _num_marks(raw) > MAX_HEADER_MARKS:
        raise DamagedError("its header has too many parts")
    try:
        header = json_text.loads(raw)
    except ValueError as error:
        raise DamagedError(f"its header is not JSON ({str(error)[:80]})") from None
    text = header.pop("__metadata__", None) if isinstance(header, dict) else None
    if not isinstance(text, dict) or not all(isinstance(value, str) for value in text.values()):
        raise DamagedError("its header holds no text of ours")
    if len(text.get("sha256", "")) != len(_NO_SUM) or not text["sha256"].isascii():
        raise DamagedError("its header holds no checksum")
    return text, header


def _check_entries(entries: dict[str, Any], num_bytes: int) -> None:
    """The tensors must fill the data exactly: in range, no overlap, no hole, each as long as its shape says."""
    spans = sorted(_checked_span(name, entry) for name, entry in entries.items())
    at = 0
    for start, end in spans:
        if start != at:
            raise DamagedError("its tensors overlap or leave a hole")
        at = end
    if at != num_bytes:
        raise DamagedError(f"its tensors take {at} bytes, the file holds {num_bytes}")


def _checked_span(name: str, entry: Any) -> tuple[int, int]:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise DamagedError(f"tensor {name[:80]!r} is not described")
    dtype, shape, span = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise DamagedError(f"tensor {name[:80]!r} has an unknown type")
    if not _are_counts(shape) or not _are_counts(span) or len(shape) > MAX_DIMENSIONS or len(span) != 2:
        raise DamagedError(f"tensor {name[:80]!r} has an impossible shape or place")
    if math.prod(shape) * _DTYPES[dtype].itemsize != span[1] - span[0]:
        raise DamagedError(f"tensor {name[:80]!r} has a shape that does not fit its bytes")
    return span[0], span[1]


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 1 << 62 for value in values)


def _tensor(name: str, data: NDArray[np.uint8], entry: dict[str, Any]) -> Tensor:
    start, end = entry["data_offsets"]
    raw = data[start:end]
    if entry["dtype"] == "BOOL" and (raw > 1).any():
        raise DamagedError(f"tensor {name[:80]!r} holds bytes that are neither true nor false")
    try:
        return raw.view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
    except ValueError:  # for example no elements in dimensions beyond what numpy can count
        raise DamagedError(f"tensor {name[:80]!r} has an impossible shape") from None
