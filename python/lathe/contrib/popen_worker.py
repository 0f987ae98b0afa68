"""The program of a worker process: `python popen_worker.py READ WRITE` reads work from one descriptor and writes what
came of it to the other.  It imports nothing of Lathe by itself; what the work needs comes with it."""

import os
import pickle
import struct
import sys
from typing import Any


def read(fd: int) -> Any:
    """The next message; None when there are no more."""
    head = _bytes(fd, 8)
    return pickle.loads(_bytes(fd, struct.unpack("<Q", head)[0])) if head else None


def _bytes(fd: int, n: int) -> bytes:
    out = b""
    while len(out) < n:
        more = os.read(fd, n - len(out))
        if not more:
            return b""
        out += more
    return out


def write(fd: int, data: bytes) -> None:
    """Sends a message, pickled already."""
    data = struct.pack("<Q", len(data)) + data
    while data:
        data = data[os.write(fd, data) :]


def _answer(status: str, value: Any) -> bytes:
    try:
        return pickle.dumps((status, value))
    except Exception as e:  # pylint: disable=broad-except
        return pickle.dumps(
            ("failed", RuntimeError(f"{type(value).__name__} cannot be sent back: {e}; it is {value!r}"))
        )


def main() -> None:
    """Work by work, until the other end closes."""
    reader, writer = int(sys.argv[1]), int(sys.argv[2])
    path, stand_in = read(reader)
    sys.path[:] = path
    if stand_in:
        import lathe.compat.tvm  # noqa: F401
    while True:
        try:
            work = read(reader)
            if work is None:
                return
            fn, args, kwargs = work
            status, value = "done", fn(*args, **kwargs)
        except Exception as e:  # pylint: disable=broad-except
            status, value = "failed", e
        write(writer, _answer(status, value))


if __name__ == "__main__":
    main()
