# make demo    compile a real model, check it against eager, time it
# make test    lint, types and every test that needs no GPU
# make accept  rewrite the golden text from what the compiler prints now (then read the diff)
#
# The first call makes $(VENV) with the pinned versions. To use an environment that already holds torch, triton and the
# test tools (and this package: pip install --no-deps -e .), name its Python and no folder: make test PYTHON=python3 VENV=

PYTHON ?= python3
VENV = .venv
PINNED = $(shell grep -E '^(torch|triton)==' constraints.txt)

ifeq ($(strip $(VENV)),)
RUN := $(PYTHON)
READY :=
else
RUN := $(VENV)/bin/python
READY := $(VENV)/.installed
endif

.PHONY: demo test lint accept
demo: $(READY)
	$(RUN) -m helion_inductor

test: lint
	$(RUN) -m pytest -n 2 -m "not gpu"

lint: $(READY)
	$(RUN) -m ruff check .
	$(RUN) -m mypy

accept: $(READY)
	$(RUN) -m pytest tests/golden --accept

# torch and triton come first and exactly pinned: left to a range, pip may choose another, much larger build.
# The build is not isolated, so that nothing is resolved a second time.
$(VENV)/.installed: setup.cfg constraints.txt
	@echo 'making $(VENV): takes a minute or more, once'
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install -q -c constraints.txt setuptools
	$(RUN) -m pip install -q $(PINNED)
	$(RUN) -m pip install -q -c constraints.txt --no-build-isolation -e '.[test,models]'
	touch $@
