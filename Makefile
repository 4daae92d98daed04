# Chores; .ci/run makes a fresh virtual environment and runs `make wheel check` in it.
PYTHON ?= python

.PHONY: help install check lint types test wheel docs sample format ci

help:      ## list the chores
	@sed -nE 's/^([a-z]+):[^#]*## +(.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 10

install:   ## install the package for development
	$(PYTHON) -m pip install -q -e '.[test,test-torch]'

check: lint types test  ## style, types and tests

lint:      ## style, without changing anything
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

format:    ## apply the style
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

types:     ## mypy --strict
	$(PYTHON) -m mypy

test:      ## all tests, on two cores
	$(PYTHON) -m pytest -q -n 2

wheel:     ## build a wheel, install it aside, and run the demo and a report from there
	work=$$(mktemp -d) && trap 'rm -rf "$$work"' EXIT && \
	$(PYTHON) -m pip wheel -q --no-deps -w "$$work/wheel" . </dev/null && \
	$(PYTHON) -m pip install -q --no-deps --target "$$work/installed" "$$work"/wheel/*.whl </dev/null && \
	export PYTHONPATH="$$work/installed" && \
	$(PYTHON) -c 'import chakra_et, sys; sys.exit(not chakra_et.__file__.startswith(sys.argv[1]))' "$$work/installed" && \
	{ $(PYTHON) -m chakra_et.cli demo -o "$$work/demo" && \
	  $(PYTHON) -m chakra_et.cli report "$$work/demo/gpu-traces" -o "$$work/report.html"; } >"$$work/log" || { cat "$$work/log"; exit 1; }

docs:      ## regenerate the reference pages, and the output of the examples
	$(PYTHON) docs/generate_reference.py
	$(PYTHON) docs/run_examples.py

sample:    ## capture the bundled sample again (needs torch)
	$(PYTHON) examples/capture_ddp.py --out examples/data --scrub

ci:        ## what continuous integration runs
	bash .ci/run
