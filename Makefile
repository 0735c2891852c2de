# `make demo` and `make test` are the two to know; both set up .venv first.
# Another Python or folder: make venv PYTHON=python3.10 VENV=.venv310
VENV ?= .venv
PYTHON ?=
PY := $(VENV)/bin/python
export VENV PYTHON

# One thread: models here are small, and where the machine is busy two threads wait for each other,
# which makes a run several times slower. To use more: make demo OMP_NUM_THREADS=4
OMP_NUM_THREADS ?= 1
export OMP_NUM_THREADS

.PHONY: help venv demo test lint format bench figures clean

help:
	@echo 'make demo     set up, then train the copy task (examples/copy_task.py)'
	@echo 'make test     set up, then run all tests'
	@echo 'make venv     set up alone: .venv with Python 3.11 or 3.10'
	@echo 'make lint     ruff and mypy'
	@echo 'make format   let ruff lay out the code'
	@echo 'make bench    run the benchmarks'
	@echo 'make figures  draw the pictures of the README and the docs again'
	@echo 'make clean    remove .venv and caches'

venv:
	@tools/venv.sh

demo: venv
	$(PY) examples/copy_task.py

test: venv
	$(PY) -m pytest

lint: venv
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy

format: venv
	$(PY) -m ruff check --fix
	$(PY) -m ruff format

bench: venv
	$(PY) benchmarks/run.py

figures: venv
	$(PY) examples/make_figures.py

clean:
	rm -rf '$(VENV)' .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist *.egg-info
