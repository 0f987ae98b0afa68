"""What the tests share."""

import numpy as np
import pytest

import lathe
from lathe._ffi import call


def pytest_report_header(config):
    llvm, version = call("build_info")
    return f"lathe {lathe.__version__}, {'LLVM ' + version if llvm else 'without LLVM'}, {lathe.target.Target()}"


@pytest.fixture
def rng():
    """A generator with a fixed seed."""
    return np.random.default_rng(20)


# What LLVM alone has: test, and why a build without it (`make test-c-backend`) leaves it out.
LLVM_ONLY = {
    "test_cli.py::test_inspect_reads_files_of_any_machine": "it compiles for other machines",
    "test_cli.py::test_missing_tools_are_said_before_compiling": "it takes the C compiler away",
    "test_cli.py::test_what_needs_no_tools": "it takes the C compiler away",
    "test_docs.py::test_examples_of_the_help_run": "one of them shows assembly",
    "test_docs.py::test_every_block[model.md]": "it compiles for other machines",
    "test_fast_math.py::test_instructions": "it looks for instructions in the assembly",
    "test_fast_math.py::test_pairs_where_they_pay": "it looks for instructions in the assembly",
    "test_fast_math.py::test_blocks_where_they_pay": "it looks for instructions in the assembly",
    "test_fast_math.py::test_float16_needs_arithmetic_in_it": "it compiles for other machines",
    "test_linking.py::test_llvm_gives_no_c": "without it, that target's code is C",
    "test_memory_operators.py::test_put_together_in_one_run": "it counts parallel regions in LLVM's text",
    "test_memory_operators.py::test_put_together_and_scaled_in_one_region": "it counts parallel regions in LLVM's text",
    "test_meta_schedule.py::test_auto_scheduler": "a quick C compiler leaves the search nothing to find",
    "test_narrow_models.py::test_dot_products_of_bfloat16": "it compiles for other machines",
    "test_narrow_models.py::test_the_report_says_what_is_not_faster": "it compiles for other machines",
    "test_narrow_models.py::test_what_only_moves_elements_stays_narrow": "it looks for instructions in the assembly",
    "test_tvm_tutorials.py::test_import_llvm": "it brings LLVM's own code along",
}


def pytest_collection_modifyitems(items):
    if call("build_info")[0]:
        return
    for item in items:
        names = (f"{item.path.name}::{name}" for name in (item.originalname, item.name))
        reason = next((LLVM_ONLY[name] for name in names if name in LLVM_ONLY), None)
        if reason:
            item.add_marker(pytest.mark.skip(reason=f"LLVM alone: {reason}"))


BACKENDS = ["c"] + (["llvm -mcpu=native"] if call("build_info")[0] else [])


@pytest.fixture(params=BACKENDS, ids=lambda t: t.split()[0])
def target(request):
    """Each backend that runs here."""
    return request.param
