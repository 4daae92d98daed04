# Chores; .ci/run does the same as `make check`, in a fresh virtual environment.
PYTHON ?= python

.PHONY: help install check lint types test docs sample format ci

help:      ## list the chores
	@sed -nE 's/^([a-z]+):[^#]*## +(.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 10

install:   ## install the package for development
	$(PYTHON) -m pip install -e '.[test]'

check: lint types test  ## everything that must pass

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

docs:      ## regenerate the reference pages, and the output of the examples
	$(PYTHON) docs/generate_reference.py
	$(PYTHON) docs/run_examples.py

sample:    ## capture the bundled sample again (needs torch)
	$(PYTHON) examples/capture_ddp.py --out examples/data --scrub

ci:        ## what continuous integration runs
	bash .ci/run
