"""Headless Chromium, driven through its pipe: a page of a folder, and JavaScript in it."""

import contextlib
import functools
import http.server
import json
import os
import pathlib
import runpy
import shutil
import subprocess
import tempfile
import threading

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


SERVER = pathlib.Path(__file__).resolve().parents[2] / "examples/web/serve.py"


@contextlib.contextmanager
def served(folder, isolated=False):
    """The folder at an address of this machine; isolated: its pages may share memory with workers."""
    of_example = runpy.run_path(str(SERVER))["Handler"]
    quiet = type("Quiet", (of_example,), {"isolated": isolated, "log_message": lambda *_: None})
    handler = functools.partial(quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class Page:
    """A tab: what the DevTools protocol is told goes through one pipe, what it answers comes through another."""

    def __init__(self, send, receive):
        self._send, self._receive, self._count, self._session = send, receive, 0, None
        self.complaints = []
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.command("Page.enable")
        self.command("Runtime.enable")

    def _message(self):
        bytes_ = bytearray()
        while not bytes_.endswith(b"\0"):
            byte = self._receive.read(1)
            assert byte, "Chromium went away"
            bytes_ += byte
        message = json.loads(bytes_[:-1])
        if message.get("method") == "Runtime.exceptionThrown":
            details = message["params"]["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        return message

    def command(self, method, **params):
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._send.write(json.dumps(message).encode() + b"\0")
        self._send.flush()
        while True:
            answer = self._message()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]

    def open(self, url):
        """Opens the page and waits until it is loaded, its modules included."""
        self.command("Page.navigate", url=url)
        while self._message().get("method") != "Page.loadEventFired":
            pass

    def run(self, script):
        """The value of an expression; a promise is waited for."""
        answer = self.command("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, condition, seconds=120):
        """Until the expression is true."""
        self.run(f"new Promise((done, fail) => {{ const end = Date.now() + {1000 * seconds};"
                 f" const look = () => ({condition}) ? done() : Date.now() > end ? fail('late') : setTimeout(look, 20);"
                 " look(); })")  # fmt: skip


@contextlib.contextmanager
def browser():
    """A page of a new Chromium."""
    to_browser, ours = os.pipe()
    theirs, from_browser = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   "--no-first-run", f"--user-data-dir={profile}", "--remote-debugging-pipe"]  # fmt: skip

        def pipes():  # it reads from 3 and writes to 4
            os.dup2(to_browser, 100), os.dup2(from_browser, 101)
            os.dup2(100, 3), os.dup2(101, 4)

        process = subprocess.Popen(command, preexec_fn=pipes, close_fds=False,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        os.close(to_browser), os.close(from_browser)
        with os.fdopen(ours, "wb") as send, os.fdopen(theirs, "rb", buffering=0) as receive:
            try:
                yield Page(send, receive)
            finally:
                process.terminate()
                process.wait()
