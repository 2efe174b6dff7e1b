# The two commands of the README are `make demo` and `make test`.

PYTHON ?= python3

BIN = .venv/bin
DEBUG_BIN = .venv-debug/bin
CORE = $(wildcard src/zodbcache/_core/*.[ch] src/zodbcache/_core/*/*.[ch])
BUILD = pyproject.toml setup.py $(CORE)

# AddressSanitizer must come before the interpreter, and the C++ library before its interceptors.
SANITIZER = LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libstdc++.so)" \
	PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0

.PHONY: demo test check debug clean

demo: .venv/installed-demo
	$(BIN)/zodbcache demo

test: check
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal

check: .venv/installed-test
	$(BIN)/ruff check .
	$(BIN)/mypy
	ZODBCACHE_WERROR=1 $(BIN)/python setup.py --quiet build_ext --force \
		--build-lib build/werror --build-temp build/werror

debug: .venv-debug/installed
	$(SANITIZER) $(DEBUG_BIN)/python -m pytest

clean:
	rm -rf .venv .venv-debug build src/*.egg-info src/zodbcache/_core/*.so

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed-%: .venv/bin/python $(BUILD)
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	touch $@

# Not editable: a release build and a debug build of the core would overwrite each other.
.venv-debug/installed: $(BUILD) $(shell find src -name '*.py' -o -name '*.xml')
	$(PYTHON) -m venv .venv-debug
	rm -rf build
	ZODBCACHE_DEBUG=1 $(DEBUG_BIN)/python -m pip install --quiet --no-cache-dir '.[test]'
	ZODBCACHE_DEBUG=1 $(DEBUG_BIN)/python -m pip install --quiet --no-cache-dir \
		--force-reinstall --no-deps .
	rm -rf build
	touch $@
