"""Scripts with types pass mypy --strict: what py.typed promises."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "tests/python/typed").glob("*.py"))
EXAMPLES = [p for p in sorted((ROOT / "examples").glob("*.py")) if "T.Buffer(" not in p.read_text()]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("mypy")


def mypy(cache, *files):
    """Errors in the files themselves; the package is read as an installed one is."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--follow-imports=silent",
            "--ignore-missing-imports",
            f"--cache-dir={cache}",
            *map(str, files),
        ],
        cwd=cache,
        env={**os.environ, "MYPYPATH": f"{ROOT / 'python'}:{ROOT / 'examples'}"},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def blocks():
    """Python blocks of README and docs.  TVMScript (T.Buffer(…) as an annotation) and the classes that become operators
    are not Python's type language."""
    for file in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for i, text in enumerate(re.findall(r"```python\n(.*?)```", file.read_text(), re.S)):
            if "T.Buffer(" not in text and ".register(" not in text:
                yield f"{file.stem}_{i}", text


def test_scripts_with_types(cache, tmp_path):
    scripts = [*SCRIPTS, *EXAMPLES]
    for name, text in blocks():
        scripts.append(tmp_path / f"{name}.py")
        scripts[-1].write_text(text)
    assert len(SCRIPTS) >= 3 and len(EXAMPLES) >= 5 and len(scripts) - len(SCRIPTS) - len(EXAMPLES) >= 5
    code, said = mypy(cache, *scripts)
    assert code == 0, said


MISTAKES = {
    "relay.nn.conv2d(x, x, stride=2)": 'Unexpected keyword argument "stride"',
    "relay.nn.softmax(x, axis='last')": 'Argument "axis" to "softmax"',
    "relay.no_such_operator(x)": 'has no attribute "no_such_operator"',
    "relay.transform.FuseOps(level=2)": 'Unexpected keyword argument "level"',
    "n: int = relay.add(x, x)": "Incompatible types in assignment",
}


def test_mistakes_are_found(cache, tmp_path):
    file = tmp_path / "mistakes.py"
    file.write_text('from lathe import relay\nx = relay.var("x", shape=(2,))\n' + "\n".join(MISTAKES) + "\n")
    code, said = mypy(cache, file)
    assert code == 1
    for line, wrong in enumerate(MISTAKES.values(), 3):
        assert re.search(rf":{line}: error: .*{re.escape(wrong)}", said), said


def test_stubs_are_what_the_tables_say():
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/stubs.py"), "--check"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
