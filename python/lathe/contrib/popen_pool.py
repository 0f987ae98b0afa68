"""Functions run in other processes, with a time limit: a worker, and a pool of them.

>>> pool = PopenPoolExecutor(max_workers=2, timeout=10)
>>> pool.submit(math.sqrt, 2.0).result()

Functions and arguments travel by pickle, so a function must be one of a module; with the package cloudpickle installed,
functions of the main program and lambdas travel too.  A worker that runs past its limit is ended and a new one started.
"""

from __future__ import annotations

import concurrent.futures
import os
import pickle
import select
import subprocess
import sys
import threading
import time
from enum import IntEnum
from typing import Any, Callable, Iterable, Iterator, List, NamedTuple, Optional

from .. import error
from . import popen_worker


class StatusKind(IntEnum):
    """What became of a piece of work."""

    RUNNING = 0
    COMPLETE = 1
    EXCEPTION = 2
    TIMEOUT = 3


class MapResult(NamedTuple):
    """What became of a piece of work, and its value or exception."""

    status: StatusKind
    value: Any


def _pickled(work: Any) -> bytes:
    try:
        import cloudpickle

        return bytes(cloudpickle.dumps(work))
    except ImportError:
        pass
    fn = work[0]
    name = getattr(fn, "__qualname__", repr(fn))
    way_out = "put it into a module, or install the package cloudpickle"
    if getattr(fn, "__module__", None) == "__main__":
        raise error.ArgumentError(
            f"the function {name} of the main program cannot travel to another process; {way_out}"
        )
    try:
        return pickle.dumps(work)
    except Exception as e:  # pylint: disable=broad-except
        raise error.ArgumentError(
            f"the function {name} or an argument cannot travel to another process ({e}); {way_out}"
        ) from None


class PopenWorker:
    """A process that runs one function at a time: send, then recv."""

    def __init__(
        self,
        initializer: Optional[Callable[..., Any]] = None,
        initargs: Any = (),
        maximum_uses: Optional[int] = None,
        stdout: Any = None,
        stderr: Any = None,
    ):
        if maximum_uses is not None and maximum_uses < 1:
            raise error.ArgumentError(f"maximum_uses is at least 1, not {maximum_uses}")
        self._initializer, self._initargs, self._maximum_uses = initializer, tuple(initargs), maximum_uses
        self._stdout, self._stderr = stdout, stderr
        self._process: Optional["subprocess.Popen[bytes]"] = None
        self._reader = self._writer = -1
        self._uses, self._until = 0, None  # type: int, Optional[float]

    def __del__(self) -> None:
        self.kill()

    def _start(self) -> None:
        theirs_in, self._writer = os.pipe()
        self._reader, theirs_out = os.pipe()
        command = [sys.executable, popen_worker.__file__, str(theirs_in), str(theirs_out)]
        self._process = subprocess.Popen(
            command, pass_fds=(theirs_in, theirs_out), stdout=self._stdout, stderr=self._stderr
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._uses = 0
        popen_worker.write(self._writer, pickle.dumps((sys.path, "lathe.compat.tvm" in sys.modules)))
        if self._initializer is not None:
            popen_worker.write(self._writer, _pickled((self._initializer, self._initargs, {})))
            self._result(None)

    def is_alive(self) -> bool:
        """Is there a process that waits for work or does it?"""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Ends the process; the next send starts another."""
        process, self._process = self._process, None
        if process is None:
            return
        os.close(self._reader)
        os.close(self._writer)
        process.kill()
        process.wait()

    def join(self, timeout: Optional[float] = None) -> None:
        """Waits until the process ended by itself, for a while."""
        if self._process is not None:
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                pass

    def send(self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, timeout: Optional[float] = None) -> None:
        """Starts fn(*args, **kwargs) in the process; recv gives what came of it, or TimeoutError after timeout
        seconds."""
        work = _pickled((fn, tuple(args), dict(kwargs or {})))
        if self._process is not None and (not self.is_alive() or self._uses == self._maximum_uses):
            self.kill()
        if self._process is None:
            self._start()
        self._uses += 1
        self._until = None if timeout is None else time.monotonic() + timeout
        try:
            popen_worker.write(self._writer, work)
        except BrokenPipeError:
            pass  # recv says that the process ended

    def recv(self) -> Any:
        """What the function gave; its exception; TimeoutError; ChildProcessError if the process ended."""
        if self._process is None:
            raise error.ArgumentError("recv: nothing was sent")
        return self._result(self._until)

    def _result(self, until: Optional[float]) -> Any:
        ready, _, _ = select.select(
            [self._reader], [], [], None if until is None else max(0.0, until - time.monotonic())
        )
        if not ready:
            self.kill()
            raise TimeoutError("the function ran past its time limit; its process was ended")
        answer = popen_worker.read(self._reader)
        if answer is None:
            self.kill()
            raise ChildProcessError("the process that ran the function ended by itself")
        status, value = answer
        if status == "failed":
            raise value
        return value


class PopenPoolExecutor:
    """Workers that run functions side by side.  timeout is for each piece of work, in seconds."""

    def __init__(
        self,
        max_workers: Optional[int] = None,
        timeout: Optional[float] = None,
        initializer: Optional[Callable[..., Any]] = None,
        initargs: Any = (),
        maximum_process_uses: Optional[int] = None,
        stdout: Any = None,
        stderr: Any = None,
    ):
        workers = max_workers or os.cpu_count() or 1
        self._make = lambda: PopenWorker(initializer, initargs, maximum_process_uses, stdout, stderr)
        self._timeout, self._idle, self._lock = (
            timeout,
            [],
            threading.Lock(),
        )  # type: Optional[float], List[PopenWorker], Any
        self._threads = concurrent.futures.ThreadPoolExecutor(max_workers=workers)

    def __del__(self) -> None:
        self._threads.shutdown(wait=True)
        for worker in self._idle:
            worker.kill()

    def _run(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        with self._lock:
            worker = self._idle.pop() if self._idle else self._make()
        try:
            worker.send(fn, args, kwargs, self._timeout)
            return worker.recv()
        finally:
            with self._lock:
                self._idle.append(worker)

    def submit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> "concurrent.futures.Future[Any]":
        """Starts the function when a worker is free; the future's result is what it gave."""
        return self._threads.submit(self._run, fn, args, kwargs)

    def map_with_error_catching(self, fn: Callable[[Any], Any], iterator: Iterable[Any]) -> Iterator[MapResult]:
        """What became of fn(x) for each x, in their order."""
        for future in [self.submit(fn, x) for x in iterator]:
            try:
                yield MapResult(StatusKind.COMPLETE, future.result())
            except TimeoutError as e:
                yield MapResult(StatusKind.TIMEOUT, e)
            except Exception as e:  # pylint: disable=broad-except
                yield MapResult(StatusKind.EXCEPTION, e)
