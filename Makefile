# make demo and make test are all a bare machine needs; both make .venv first.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.made
JOBS ?= 2
SEED ?= $(shell date +%s)
.DEFAULT_GOAL := help
.PHONY: help venv demo extras test test-all test-gpu lint wheel docs lock clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1@\2/p' $(MAKEFILE_LIST) | awk -F@ '{printf "%-16s %s\n", $$1, $$2}'

venv: $(STAMP)  ## the environment, from requirements.lock; PYTHON=... is the interpreter of a new one

# Made again when the lock or pyproject.toml changes. uv where it works, pip otherwise: the same hashes either way.
$(STAMP): requirements.lock pyproject.toml
	@set -eu; \
	uv=; if uv --version >/dev/null 2>&1; then uv=yes; fi; \
	if ! $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	  python=; \
	  for candidate in $(if $(PYTHON),"$(PYTHON)",python3 python3.13 python3.12 python3.11); do \
	    if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	      python=$$("$$candidate" -c 'import sys; print(sys.executable)'); break; \
	    fi; \
	  done; \
	  rm -rf $(VENV); \
	  if [ -n "$$uv" ] && [ -z "$$python" ] && [ -z "$(PYTHON)" ]; then python='>=3.11'; fi; \
	  if [ -z "$$python" ]; then \
	    echo "error: no Python 3.11 or newer$(if $(PYTHON), at $(PYTHON))" >&2; \
	    echo "hint: install one, or uv (which brings its own), or say make venv PYTHON=/path/to/python3.11" >&2; exit 2; \
	  fi; \
	  echo "making $(VENV) with $$python"; \
	  if [ -n "$$uv" ]; then uv venv --quiet --seed --python "$$python" $(VENV); \
	  elif ! "$$python" -m venv $(VENV); then \
	    echo "error: $$python cannot make a virtual environment" >&2; \
	    echo "hint: install its venv module (Debian: apt install python3-venv), or uv" >&2; exit 2; \
	  fi; \
	fi; \
	if [ -n "$$uv" ]; then \
	  uv pip install --python $(BIN)/python --require-hashes -r requirements.lock; \
	  uv pip install --python $(BIN)/python --quiet --no-deps --no-build-isolation -e .; \
	else \
	  $(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock; \
	  $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .; \
	fi
	@touch $@

demo: venv  ## train a tiny BERT from nothing, evaluate it, fill masks; under 5 minutes; goes on after Ctrl-C
	@if [ -e runs/demo/.finished ]; then rm -rf runs/demo; fi  # one that was interrupted goes on
	$(BIN)/bert-jax train --config=configs/tiny.py --workdir=runs/demo
	$(BIN)/bert-jax evaluate --model=runs/demo --output=runs/demo/evaluation.json
	@printf '%s\n' \
	  'This function returns a new [MASK] with the same shape.' \
	  'If None, the default [MASK] is used.' \
	  'The name of the [MASK] to be read.' \
	  | $(BIN)/bert-jax predict fill-mask --model=runs/demo --top-k=3
	@touch runs/demo/.finished
	@echo 'report: $(CURDIR)/runs/demo/report.html'

test: venv  ## every test that is not marked slow
	$(BIN)/python -m pytest -m 'not slow' -n $(JOBS) --dist=loadfile --no-loadscope-reorder

test-all: venv  ## every test, as users compile, with 2,000 random examples each; SEED=... draws them again
	BERT_JAX_EXAMPLES=2000 $(BIN)/python -m pytest -n $(JOBS) --dist=loadfile --no-loadscope-reorder \
	  --timeout=3600 --known-skips --hypothesis-seed=$(SEED)

# One after another, beside the versions of the lock: what does not go with these is named and left out.
EXTRAS = slurm ray tf1 tpu notebooks
extras: venv  ## optional packages that tests use, those that can be installed here
	@set -eu; pip='$(BIN)/python -m pip'; in=; \
	if uv --version >/dev/null 2>&1; then pip='uv pip' in='--python $(BIN)/python'; fi; \
	$$pip freeze $$in --exclude-editable >$(VENV)/.locked; \
	for extra in $(EXTRAS); do \
	  $$pip install $$in --quiet --no-build-isolation --constraint $(VENV)/.locked -e ".[$$extra]" \
	    && echo "installed: $$extra" || echo "cannot be installed here: $$extra"; \
	done

test-gpu: venv  ## what a GPU alone can show; without one, every test says so
	BERT_JAX_GPU=gpu $(BIN)/python -m pytest tests/gpu -rs --timeout=1800

lint: venv  ## formatting, lint and types
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/python tests/tools/docstrings.py bert_jax configs experiments
	$(BIN)/mypy

wheel: venv  ## dist/*.whl
	$(BIN)/python -m hatchling build -t wheel

docs: $(VENV)-docs/.made  ## READMEs and docstrings as a site, in site/; a dead link is an error
	NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs build
	@echo 'site: $(CURDIR)/site/index.html'

# The extra `docs` alone, in an environment beside the first: the lock does not have it.
DOCS = $$($(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['docs'])")
$(VENV)-docs/.made: $(STAMP)
	@set -eu; rm -rf $(VENV)-docs; \
	if uv --version >/dev/null 2>&1; then \
	  uv venv --quiet --python $(BIN)/python $(VENV)-docs; \
	  uv pip install --python $(VENV)-docs/bin/python $(DOCS); \
	else \
	  $(BIN)/python -m venv $(VENV)-docs; \
	  $(VENV)-docs/bin/python -m pip install --quiet $(DOCS); \
	fi
	@touch $@

lock:  ## requirements.lock from pyproject.toml; holds hashes, no address and no path
	uv pip compile pyproject.toml --extra dev --universal --generate-hashes --no-header --no-annotate \
	  --no-emit-index-url --no-emit-find-links -o requirements.lock

clean:  ## everything made here except runs/
	rm -rf .venv .venv-* $(VENV) $(VENV)-docs .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
