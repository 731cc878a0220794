# Every target sets up what it needs. PYTHON must be a Python 3.11.
PYTHON ?= python3.11
BIN := .venv/bin
READY := .venv/.ready
export TOKENIZERS_PARALLELISM := false
export HF_HUB_OFFLINE ?= 1

.PHONY: setup train test check bench bench-gpu clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet pip==26.0.1
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[train,postgres,report]' --group dev
	touch $(READY)

# Plays the run `first`; called again it goes on with it, and says so where nothing is left to do.
train: $(READY)
	@if $(BIN)/diagevo runs show first >/dev/null 2>&1; then \
	  $(BIN)/diagevo train --run first --rounds 3 --resume; \
	else \
	  $(BIN)/diagevo train --run first --rounds 3; \
	fi

# Two workers: one process of torch a core.
test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright

bench: $(READY)
	$(BIN)/python -m tests.benchmarks

# Needs a machine with a GPU; the benchmark says so and ends with 4 without one.
bench-gpu: $(READY)
	$(BIN)/python -m pytest -q -m gpu tests/training/test_gpu.py
	$(BIN)/python -m tests.benchmarks.bench_gpu

clean:
	rm -rf .venv build dist *.egg-info
