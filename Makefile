# make run    trains a network on the metal platform      make lint   style, types, C++ warnings
# make test   runs the tests (PYTEST_ARGS='-k add')        make build  the wheel, in dist/
# make sanitize  builds the plugin with sanitizers, in build/sanitize-*, and attacks it (ATTACKS times each)
#
# PYTHON makes the environment VENV; PINS are further requirements, such as 'jax==0.10.2'.
PYTHON ?= python3
VENV ?= .venv
PINS ?=
JOBS ?= 2
PYTEST_ARGS ?=
ATTACKS ?= 100000

# pip installs a copy. The checkout comes after it on sys.path (the .pth file below), for `examples`
# and `benchmarks`; `python -P` keeps Python from putting it first, because the pjrt_metal folder
# here has no compiled library in it.
BIN := $(VENV)/bin
PACKAGE := pyproject.toml CMakeLists.txt README.md LICENSE \
  $(shell find csrc pjrt_metal mlir_lowering -type f -not -path '*/__pycache__/*')
CPP := $(shell find csrc tests -type f \( -name '*.cc' -o -name '*.h' -o -name '*.m' \) \
  -not -name pjrt_c_api.h)

.PHONY: run test sanitize lint build clean

run: $(VENV)/installed-examples
	JAX_PLATFORMS=metal,cpu $(BIN)/python -P -m examples.digits

test: $(VENV)/installed-test
	$(BIN)/pytest -n $(JOBS) --dist loadfile $(PYTEST_ARGS)

sanitize: $(VENV)/installed-test
	JAX_PLATFORMS=metal,cpu $(BIN)/python -P -m tests.robustness.test_attacks $(ATTACKS)
	JAX_PLATFORMS=metal,cpu $(BIN)/python -P -m tests.robustness.sanitized_tests

lint: $(VENV)/installed-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $(CPP)
	$(BIN)/pip wheel -q --no-deps -w build/lint-wheel . \
	  -C build-dir=build/lint -C cmake.define.PJRT_METAL_WERROR=ON

build: $(BIN)/python
	$(BIN)/pip wheel --no-deps -w dist .

clean:
	rm -rf build dist .venv .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/installed-%: $(BIN)/python $(PACKAGE)
	@echo 'installing pjrt-metal and its [$*] extra: downloads, and a build of one to two minutes'
	$(BIN)/pip install -q '.[$*]' $(PINS)
	touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo 'pjrt-metal needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=python3.11'; exit 1; }
	@$(PYTHON) -c 'import ensurepip' || { \
	  echo '$(PYTHON) cannot make environments: apt-get install python3-venv'; exit 1; }
	@$(PYTHON) -c 'import sysconfig, os; open(os.path.join(sysconfig.get_path("include"), "Python.h"))' || { \
	  echo '$(PYTHON) has no C headers: apt-get install python3-dev'; exit 1; }
	@command -v c++ > /dev/null || { echo 'no C++ compiler: apt-get install g++'; exit 1; }
	$(PYTHON) -m venv $(VENV)
	echo '$(CURDIR)' > "$$($@ -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/checkout.pth"
