# Everything runs in .venv; needs python3 >= 3.11, a C++20 compiler and make, nothing activated.
PYTHON ?= python3
PYTHON310 ?= python3.10
CXX ?= g++
FUZZ_CXX ?= clang++
FUZZ_SECONDS ?= 60
FUZZ_TARGETS := $(patsubst native/fuzz/%.cpp,%,$(wildcard native/fuzz/fuzz_*.cpp))
ARM_CXX ?= aarch64-linux-gnu-g++
QEMU_ARM ?= qemu-aarch64
ARM_FLAGS ?=
DEB_ARCH ?= amd64
DEB_PYTHON ?= 3.10

BIN := .venv/bin
NATIVE_SOURCES := $(shell find native -name '*.cpp' -o -name '*.hpp' -o -name CMakeLists.txt)
CXX_FILES := $(filter %.cpp %.hpp,$(NATIVE_SOURCES))
EXTENSION_SOURCES := $(filter-out native/tests/% native/fuzz/% native/bench/%,$(NATIVE_SOURCES))
# An editable install knows the modules that there were: it is made anew when their list changes.
MODULES := .venv/modules-$(firstword $(shell find dpu_app host_ctl sim bench native/pulse_native -name '*.py' | sort | cksum))
CMAKE := $(BIN)/cmake -S native -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja

.PHONY: setup tools test test-native test-sanitizers test-tsan test-python test-py310 test-arm lint lint-python lint-native \
  lint-deep format demo bench bench-instructions fuzz fuzz-corpus deb nightly clean

setup: .venv/native-built

# Tests and linters; the demo does not wait for them.
tools: .venv/tools-ready

.venv/python-ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is older than 3.11; name a newer one: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --group build
	touch $@

.venv/tools-ready: .venv/python-ready
	$(BIN)/pip install --quiet --group test --group lint
	touch $@

# CMake's install step compares times in whole seconds and would keep an extension built in the
# same second, so the installed one goes first.
$(MODULES): .venv/python-ready
	rm -f .venv/modules-*
	touch $@

.venv/native-built: .venv/python-ready $(MODULES) $(EXTENSION_SOURCES)
	rm -f .venv/lib/python3*/site-packages/pulse_native/_*.so
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pip install --quiet --no-build-isolation --editable '.[head]'
	$(BIN)/python -c 'import pulse_native'
	touch $@

test: test-native test-sanitizers test-python

# The core without Python.
test-native: .venv/python-ready
	$(CMAKE) -B build/native -DCMAKE_CXX_COMPILER=$(CXX) -DPULSE_WERROR=ON
	$(BIN)/cmake --build build/native
	$(BIN)/ctest --test-dir build/native --output-on-failure

test-sanitizers: .venv/python-ready
	$(CMAKE) -B build/sanitizers -DCMAKE_CXX_COMPILER=$(CXX) -DPULSE_WERROR=ON -DCMAKE_BUILD_TYPE=Debug \
	  -DCMAKE_CXX_FLAGS_DEBUG='-O1 -g1' -DPULSE_SANITIZE=address,undefined
	$(BIN)/cmake --build build/sanitizers
	$(BIN)/ctest --test-dir build/sanitizers --output-on-failure

# Meters in threads of their own, each with what it shares with the others under watch.
test-tsan: .venv/python-ready
	$(CMAKE) -B build/tsan -DCMAKE_CXX_COMPILER=$(CXX) -DPULSE_WERROR=ON -DCMAKE_BUILD_TYPE=Debug \
	  -DCMAKE_CXX_FLAGS_DEBUG='-O1 -g1' -DPULSE_SANITIZE=thread
	$(BIN)/cmake --build build/tsan --target pulse_tests
	$(BIN)/ctest --test-dir build/tsan --output-on-failure

test-python: setup tools
	$(BIN)/python -m pytest -m 'not slow'

# The core on the processor that DPUs have, emulated.
test-arm: .venv/python-ready
	@for tool in $(ARM_CXX) $(QEMU_ARM); do \
	  command -v $$tool >/dev/null || { echo "test-arm skipped: there is no $$tool (Debian: g++-aarch64-linux-gnu, qemu-user)"; exit 0; }; \
	done; \
	set -e; \
	$(CMAKE) -B build/arm -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=$(ARM_CXX) \
	  -DCMAKE_CXX_FLAGS='$(ARM_FLAGS)' -DCMAKE_EXE_LINKER_FLAGS=-static -DPULSE_WERROR=ON; \
	$(BIN)/cmake --build build/arm --target pulse_tests; \
	$(QEMU_ARM) build/arm/pulse_tests

# DPU images carry Python 3.10: the package built for it, with what runs on a DPU and its tests alone.
test-py310:
	@for python in "$(PYTHON310)" $$HOME/.pyenv/versions/3.10*/bin/python; do \
	  "$$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 10))' 2>/dev/null || continue; \
	  set -e; \
	  "$$python" -m venv build/py310; \
	  build/py310/bin/pip install --quiet --upgrade 'pip>=25.1'; \
	  build/py310/bin/pip install --quiet --group test .; \
	  build/py310/bin/python -m pytest tests/wire tests/meter tests/dpu tests/firmware; \
	  exit 0; \
	done; \
	echo "test-py310 skipped: no Python 3.10 found; name one: make test-py310 PYTHON310=/path/to/python3.10"

lint: lint-python lint-native

lint-python: setup tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --python-version 3.11 host_ctl sim bench
	$(BIN)/mypy --python-version 3.10 dpu_app firmware_cfg native/pulse_native
	MYPYPATH=native $(BIN)/stubtest --allowlist native/stubtest-allowlist.txt pulse_native
	$(BIN)/lint-imports

lint-native: test-native tools
	$(BIN)/clang-format --dry-run -Werror $(CXX_FILES)
	printf '%s\n' native/src/*.cpp native/sim/*.cpp native/live/*.cpp | \
	  xargs -n 1 -P 2 $(BIN)/clang-tidy --quiet -p build/native --checks='-clang-analyzer-*'

# The path-sensitive checks take four times as long as all others together.
lint-deep: test-native tools
	printf '%s\n' native/src/*.cpp native/sim/*.cpp native/live/*.cpp | xargs -n 1 -P 2 $(BIN)/clang-tidy --quiet -p build/native

format: tools
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)

demo: setup
	$(BIN)/pulse demo

bench: setup
	$(BIN)/python -m bench offline

# Instructions per packet beside those recorded; RECORD=--record makes these the record.
bench-instructions: setup
	$(CMAKE) -B build/release -DCMAKE_CXX_COMPILER=$(CXX) -DCMAKE_BUILD_TYPE=Release
	$(BIN)/cmake --build build/release --target pulse_bench
	$(BIN)/python -m bench.measure.instructions build/release/pulse_bench $(RECORD)

# The agent's package for the Python of the card's image: make deb DEB_ARCH=arm64 DEB_PYTHON=3.10
deb:
	ARM_CXX=$(ARM_CXX) firmware_cfg/deb/wheels.sh $(DEB_ARCH) $(DEB_PYTHON) build/deb/wheels-$(DEB_ARCH)-$(DEB_PYTHON)
	$(PYTHON) firmware_cfg/deb/build.py --arch $(DEB_ARCH) --python $(DEB_PYTHON) \
	  --wheels build/deb/wheels-$(DEB_ARCH)-$(DEB_PYTHON)

fuzz: .venv/python-ready
	$(CMAKE) -B build/fuzz -DCMAKE_CXX_COMPILER=$(FUZZ_CXX) -DPULSE_BUILD_TESTS=OFF -DPULSE_BUILD_FUZZERS=ON \
	  -DPULSE_SANITIZE=address,undefined,fuzzer-no-link
	$(BIN)/cmake --build build/fuzz
	for target in $(FUZZ_TARGETS); do \
	  mkdir -p build/fuzz/found/$$target; \
	  build/fuzz/$$target -artifact_prefix=build/fuzz/$$target- -max_total_time=$(FUZZ_SECONDS) -max_len=4096 \
	    build/fuzz/found/$$target native/fuzz/corpus/$$target || exit 1; \
	done

# Keeps of all that was found few small inputs that reach the same code.
fuzz-corpus: fuzz
	$(BIN)/python -m native.fuzz.make_seeds build/fuzz/found
	for target in $(FUZZ_TARGETS); do \
	  rm -rf build/fuzz/fewest && mkdir build/fuzz/fewest && mkdir -p native/fuzz/corpus/$$target; \
	  build/fuzz/$$target -set_cover_merge=1 -use_counters=0 -max_len=512 build/fuzz/fewest build/fuzz/found/$$target \
	    native/fuzz/corpus/$$target || exit 1; \
	  rm -f native/fuzz/corpus/$$target/*; \
	  for input in build/fuzz/fewest/*; do cp $$input native/fuzz/corpus/$$target/$${input##*/}.bin; done; \
	done

nightly: test test-tsan test-py310 test-arm lint lint-deep fuzz bench-instructions
	$(BIN)/python -m pytest -m slow

clean:
	rm -rf build .venv
