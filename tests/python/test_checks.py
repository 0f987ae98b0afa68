"""The checks of the code's form see what they are there for."""
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import check_layers  # noqa: E402
import check_symbols  # noqa: E402


@pytest.fixture
def tree(tmp_path):
    def make(path, text):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
        return check_layers.violations(tmp_path)
    make("src/LAYERS", "# lowest first\nbase: arena_\n  text_ defer\nexpr: expr_\n")
    return make


def test_layers_of_the_list(tree, tmp_path):
    assert check_layers.layers(tmp_path) == {"base": ["arena_", "text_", "defer"], "expr": ["expr_"]}
    assert tree("src/base/a.c", '#include "base/base.h"\n') == []
    assert tree("src/expr/a.c", '#include "base/base.h"\n#include "../base/base.h"\n') == []


@pytest.mark.parametrize("include", ['"expr/expr.h"', '"../expr/expr.h"', '"../../runtime/model.h"', "<llvm-c/Core.h>"])
def test_an_include_that_goes_up(tree, include):
    assert len(tree("src/base/a.c", f"#include {include}\n")) == 1


def test_the_format_of_models_is_shared(tree):
    assert tree("src/base/a.c", '#include "../../runtime/model_format.h"\n') == []


def test_a_folder_that_is_not_listed(tree):
    assert "is not in src/LAYERS" in tree("src/tir/a.c", "")[0]


def test_words_and_names():
    words = {"te_": "te", "te_sched_": "schedule", "op_": "op", "*_attrs": "op", "defer": "base", "rt_": "runtime"}
    owned = {"te_compute": "te", "te_sched_new": "schedule", "Clip_attrs": "op", "op_attrs": "op", "defer": "base",
             "deferred": "", "add": "", "rt_pool": "runtime", "te": ""}
    assert {name: check_symbols.owner(name, words) for name in owned} == owned


def test_no_word_belongs_to_two_layers():
    assert set(check_symbols.owners().values()) == {*check_layers.layers(), "runtime"}
