# What a user or a developer types. Everything runs from .venv and jars/, which `make setup` makes and keeps right.
#
# To renew the pinned packages after a change of pyproject.toml, with UV="uv pip compile --python-version 3.11
# --generate-hashes --no-annotate --no-header" (.venv/bin/uv; --upgrade-package NAME for a newer one):
#     $UV pyproject.toml -o requirements.txt                        what running needs
#     $UV --group dev -c requirements.txt -o requirements-dev.txt   what tests, lint and types need beside it
#     $UV --group setup -o requirements-setup.txt                   what installs them
#     $UV --group audit -o requirements-audit.txt                   what looks for known vulnerabilities
# Airflow's, which have an environment of their own:
#     printf 'apache-airflow==3.3.2\napache-airflow-providers-apache-spark==6.3.4\nsetuptools\n' | uv pip compile - \
#         --python-version 3.11 --generate-hashes --no-annotate --no-header -o requirements-airflow.txt
# To renew the jars after a change of the version (in pom.xml, scripts/setup.sh, spark-conf/cluster.conf and
# pyproject.toml): empty jars/, run the mvn command of scripts/setup.sh with -DoutputDirectory=jars, and
#     (cd jars && sha256sum *.jar) > scripts/jars.sha256

SHELL := /bin/bash
VENV := .venv/bin
# Each of the two has a Spark session, for all its tests: one alone leaves a third of two cores idle. Files come in the order
# of tests/conftest.py, long ones first; xdist's own puts the files of many tests first, which are the short ones here.
PYTEST_SIDE_BY_SIDE := $(VENV)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder
export PYTHON

.PHONY: help setup setup-dev demo airflow airflow-demo package test test-quick test-slow test-all prepare-slow test-nightly \
	test-engine bench lint types audit clean

help:
	@echo "make setup       .venv with what running needs, jars/ with Delta; again: nothing to do"
	@echo "make demo        setup, then a real RocketMQ store becomes tables, with answers in SQL"
	@echo "make airflow     Airflow in an environment of its own (airflow-demo: the DAGs on a sample store, in a browser)"
	@echo "make package     dist/: what the executors of a cluster need, and settings for each kind of cluster"
	@echo "make test        setup, then the test suite (test-quick: under 3 minutes; test-slow: histories and scenes;"
	@echo "                 test-all: both in one go, as CI does;"
	@echo "                 test-nightly: longer ones; test-engine: groups and deliveries on the engine users run)"
	@echo "make bench       setup, then the benchmarks: 40 minutes, and a page with charts"
	@echo "make lint types  ruff, the order of imports, and mypy"
	@echo "make audit       known vulnerabilities of the pinned packages; needs the network"
	@echo "make clean       remove what setup and runs have made"

setup:
	@scripts/setup.sh

# What tests, lint and types need beside it.
setup-dev:
	@scripts/setup.sh dev

demo:
	@scripts/setup.sh demo

airflow: setup
	@scripts/setup_airflow.sh

airflow-demo: airflow
	@.airflow/venv/bin/python scripts/airflow_demo.py $(if $(KEEP),--keep)

package: setup
	@scripts/package.sh

test: setup-dev
	$(PYTEST_SIDE_BY_SIDE) -m "not slow and not nightly" --durations=15

test-quick: setup-dev
	$(VENV)/python -m pytest -m "quick and not slow and not nightly"

test-slow: prepare-slow
	$(PYTEST_SIDE_BY_SIDE) -m "slow and not nightly" --durations=10

# Both in one go: sessions, templates and imported stores are made once, and long files run beside short ones.
test-all: prepare-slow
	$(PYTEST_SIDE_BY_SIDE) -m "not nightly" --durations=25

prepare-slow: setup-dev airflow package
	@scripts/browser.sh
	@scripts/test_jars.sh rocketmq tests/export/pom.xml

# Not in .ci/run: longer than a change can wait for.
test-nightly: prepare-slow
	@scripts/test_jars.sh hdfs tests/scenes/pom.xml
	$(VENV)/python -m pytest -m nightly -v

test-engine: setup-dev
	COMMITLAKE_TEST_ENGINE=users $(VENV)/python -m pytest -m "not nightly" --durations=15 \
		tests/consume tests/delay tests/retry tests/transaction

bench: setup
	@$(VENV)/python benchmarks/bench.py

lint: setup-dev
	$(VENV)/ruff check .
	$(VENV)/lint-imports --no-cache

types: setup-dev
	$(VENV)/mypy

audit:
	@scripts/audit.sh

clean:
	rm -rf .venv .airflow .setup jars build dist *.egg-info spark-warehouse metastore_db derby.log
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
