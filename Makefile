# Lathe.  Every target sets up what it needs (Debian packages, .venv) and is quick
# when that is there already.

BUILD  ?= build
PYTHON := .venv/bin/python
RUN_PY := PYTHONPATH=python $(PYTHON)

.PHONY: help build demo test test-slow test-all test-rest all-builds conformance c-backend test-c-backend cross \
        test-cross sanitized asan fuzz bench golden wheel format check-format clean

help:
	@echo "make build    the compiler: $(BUILD)/lathe, liblathe.so, liblathe_rt.so"
	@echo "make demo     a digit classifier and ResNet-18, from ONNX files to programs that run"
	@echo "make test     all tests but the slow ones; make test-slow: the large networks"
	@echo "make test-c-backend   tests with a build that has no LLVM, so that everything goes through C"
	@echo "make test-cross   builds for the other architecture and tests under qemu-user; models on other machines"
	@echo "make test-all     everything that the others leave out; PART=K/N runs the Kth of N parts"
	@echo "make test-rest    the part of that which CI has; PART=K/N as well"
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
	@tools/setup tests python web
	@cmake --build $(BUILD) --target c_tests
	@$(PYTHON) tests/run.py $(BUILD)

test-slow: build
	@tools/setup python
	@LATHE_LIBRARY_PATH=$(BUILD) $(RUN_PY) -m pytest -q -m slow tests/python

conformance: build
	@tools/setup python
	@LATHE_LIBRARY_PATH=$(BUILD) $(RUN_PY) tests/conformance.py

# The build without LLVM, for every C test and the Python tests that tests/selection.py names.
c-backend:
	@tools/setup build tests python
	@cmake --preset without-llvm -B build-c >/dev/null
	@cmake --build build-c --target all c_tests

test-c-backend: c-backend
	@CC=$(CURDIR)/tests/quick-cc $(PYTHON) tests/run.py build-c --select c-backend

# What is built for the other architecture (CROSS_ARCH=x86_64 or aarch64 names it), and what runs there under an
# emulator: C tests that tests/selection.py names, and models that are compiled here for that architecture and for
# machines that no build is for (32-bit ARM, RISC-V, WebAssembly in node).
cross:
	@tools/setup build tests python cross
	@cmake --preset cross -B build-cross $(if $(CROSS_ARCH),-DCROSS_ARCH=$(CROSS_ARCH)) >/dev/null
	@cmake --build build-cross --target all c_tests

test-cross: build cross
	@$(PYTHON) tests/run.py build-cross --runner "tools/cross-run build-cross" --c-only --select cross
	@LATHE_CROSS=build-cross $(PYTHON) tests/run.py $(BUILD) --python-only --tests tests/python/test_end_to_end.py
	@tools/setup web
	@$(PYTHON) tests/run.py $(BUILD) --select machines

# Everything that the others leave out, in units that tests/all.py lists; PART=K/N takes every Nth of them from the Kth.
# test-rest is what CI has of it.
all-builds: build sanitized cross c-backend
	@tools/setup fuzz web
	@cmake --preset fuzz -B build-fuzz >/dev/null
	@cmake --build build-fuzz --target fuzzers

test-all: all-builds
	@tools/setup browser
	@$(PYTHON) tests/all.py $(if $(PART),--part $(PART))

test-rest: all-builds
	@$(PYTHON) tests/all.py --ci $(if $(PART),--part $(PART))

sanitized:
	@tools/setup build tests python
	@cmake --preset sanitized -B build-asan >/dev/null
	@cmake --build build-asan --target c_tests

asan: sanitized
	@$(PYTHON) tests/run.py build-asan --c-only --select asan
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
