"""A worker of `lathe tune` whose measurements run as tasks of Ray (https://ray.io), wherever Ray has a free CPU.

    pip install ray
    lathe tune examples/matmul.py --trials 20 --db tune.db \\
        --workers "python3 examples/ray_worker.py" --workers "python3 examples/ray_worker.py"

The tuner speaks to this process over pipes: `job LENGTH` and a text; it answers `answer LENGTH` or `error LENGTH` and a
text.  The text of a job is handed to the compiler as it is, on the machine that Ray chose."""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))


def measure(job: str) -> str:
    """Runs where Ray puts it."""
    from lathe._ffi import call

    return str(call("tune_answer", job))


def main() -> None:
    """Serves until the tuner goes."""
    try:
        import ray
    except ImportError:
        sys.exit("this worker wants Ray: pip install ray")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what Ray prints is no answer
    ray.init(address=os.environ.get("RAY_ADDRESS"), log_to_driver=False, configure_logging=False)
    task = ray.remote(num_cpus=1)(measure)
    answers.write(b"lathe-worker 1\n")
    answers.flush()
    while True:
        head = sys.stdin.buffer.readline().split()
        if len(head) != 2 or head[0] != b"job":
            return
        job = sys.stdin.buffer.read(int(head[1])).decode()
        try:
            kind, text = "answer", ray.get(task.remote(job))
        except Exception as e:  # pylint: disable=broad-except  # whatever it is, the tuner is to hear of it
            kind, text = "error", str(e)
        data = text.encode()
        answers.write(f"{kind} {len(data)}\n".encode() + data)
        answers.flush()


if __name__ == "__main__":
    main()
