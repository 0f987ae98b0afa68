# Lathe.  Every target sets up what it needs (Debian packages, .venv) and is quick
# when that is there already.

BUILD  ?= build
PYTHON := .venv/bin/python
RUN_PY := PYTHONPATH=python $(PYTHON)

.PHONY: help build demo test test-slow test-all conformance test-c-backend cross test-cross asan fuzz bench golden wheel \
        format check-format clean

help:
	@echo "make build    the compiler: $(BUILD)/lathe, liblathe.so, liblathe_rt.so"
	@echo "make demo     a digit classifier and ResNet-18, from ONNX files to programs that run"
	@echo "make test     all tests but the slow ones; make test-slow: the large networks"
	@echo "make test-c-backend   the tests with a build that has no LLVM: everything goes through C"
	@echo "make test-cross   builds for the other architecture and tests under qemu-user; ALL=1 runs every C test there"
	@echo "make test-all     everything that 'make test' leaves out; PART=K/N runs the Kth of N parts"
	@echo "make conformance   the public ONNX suites: counts, and what is not passed with its reason"
	@echo "make asan     the C tests under AddressSanitizer and UBSan, the thread pool under TSan"
	@echo "make fuzz     every fuzz target for FUZZ_SECONDS (20) each"
	@echo "make bench    side-by-side measurements; prints ratios"
	@echo "make golden   rewrites the expected text of the cases; review the diff"
	@echo "make wheel    a Python wheel that carries the libraries and the program, for glibc 2.28 and newer, in dist/"
	@echo "make format   clang-format on the C sources; make check-format only says where they differ"
	@echo "make clean    removes what was built"

build:
	@tools/setup build
	@cmake --preset release -B $(BUILD) >/dev/null
	@cmake --build $(BUILD)

demo: build
	@tools/setup python
	@LATHE_LIBRARY_PATH=$(BUILD) $(RUN_PY) examples/demo.py

test: build
	@tools/setup tests python
	@cmake --build $(BUILD) --target c_tests
	@$(PYTHON) tests/run.py $(BUILD)

test-slow: build
	@tools/setup python
	@LATHE_LIBRARY_PATH=$(BUILD) $(RUN_PY) -m pytest -q -m slow tests/python

conformance: build
	@tools/setup python
	@LATHE_LIBRARY_PATH=$(BUILD) $(RUN_PY) tests/conformance.py

test-c-backend:
	@tools/setup build tests python
	@cmake --preset without-llvm -B build-c >/dev/null
	@cmake --build build-c --target all c_tests
	@LATHE_LIBRARY_PATH=build-c $(PYTHON) tests/run.py build-c

# What is built for the other architecture (CROSS_ARCH=x86_64 or aarch64 names it), and what runs there: the layers that
# make or load machine code and the end-to-end tests; ALL=1 takes every C test, every text case and more of Python's.
CROSS_TESTS := tests/python/test_end_to_end.py
CROSS_MATCH := base_ 'runtime_test_[mst]' target_ te_test tir_ lower_test_guards 'codegen_test_llvm$$' codegen_test_llvm_tile \
               driver_test_static
ifdef ALL
CROSS_TESTS += tests/python/test_packed_matmul.py tests/python/test_memory_operators.py tests/python/test_zero_copy.py \
               tests/python/test_schedule.py tests/python/test_te.py tests/python/test_tir.py
CROSS_MATCH :=
endif
cross:
	@tools/setup build tests python cross
	@cmake --preset cross -B build-cross $(if $(CROSS_ARCH),-DCROSS_ARCH=$(CROSS_ARCH)) >/dev/null
	@cmake --build build-cross --target all c_tests

test-cross: cross
	@$(PYTHON) tests/run.py build-cross --runner "tools/cross-run build-cross" \
	    --python "tools/cross-run build-cross build-cross/sysroot/usr/bin/python3" \
	    $(if $(CROSS_MATCH),$(addprefix --match ,$(CROSS_MATCH)) --with-python) --tests $(CROSS_TESTS)

# Everything that `make test` leaves out, in units that tests/all.py lists; PART=K/N takes every Nth of them from the Kth.
test-all: build cross
	@tools/setup fuzz
	@cmake --preset fuzz -B build-fuzz >/dev/null
	@cmake --build build-fuzz --target fuzzers
	@$(PYTHON) tests/all.py $(if $(PART),--part $(PART))

asan:
	@tools/setup build tests python
	@cmake --preset sanitized -B build-asan >/dev/null
	@cmake --build build-asan --target c_tests
	@$(PYTHON) tests/run.py build-asan --c-only
	@cmake --preset thread-sanitized -B build-tsan >/dev/null
	@cmake --build build-tsan --target runtime_tests
	@$(PYTHON) tests/run.py build-tsan --c-only --match runtime_

FUZZ_SECONDS ?= 20
fuzz:
	@tools/setup build fuzz
	@cmake --preset fuzz -B build-fuzz >/dev/null
	@cmake --build build-fuzz --target fuzzers
	@sh tests/fuzz.sh build-fuzz $(FUZZ_SECONDS)

bench: build
	@tools/setup python
	@$(RUN_PY) bench/matmul_ladder.py

golden: build
	@cmake --build $(BUILD) --target cases
	@$(BUILD)/cases --update src

wheel:
	@tools/setup build python wheel
	@cmake --preset wheel >/dev/null
	@cmake --build build-wheel
	@LATHE_BUILD=build-wheel $(PYTHON) -m pip wheel -q --no-deps --no-build-isolation -w dist .
	@ls dist/*.whl

FORMAT = git ls-files '*.c' '*.h' | xargs clang-format-19
format:
	@tools/setup format
	@$(FORMAT) -i

check-format:
	@tools/setup format
	@$(FORMAT) --dry-run -Werror

clean:
	@rm -rf build build-asan build-tsan build-fuzz build-c build-cross build-wheel dist
