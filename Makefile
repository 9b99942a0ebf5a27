# What a user or a developer types. Everything runs from .venv and jars/, which `make setup` makes and keeps right.
#
# To renew the pinned packages after a change of pyproject.toml:
#     uv pip compile pyproject.toml --extra dev --python-version 3.11 --generate-hashes --no-annotate --no-header \
#         -o requirements.txt
# Airflow's, which have an environment of their own:
#     printf 'apache-airflow==3.3.2\napache-airflow-providers-apache-spark==6.3.4\nsetuptools\n' | uv pip compile - \
#         --python-version 3.11 --generate-hashes --no-annotate --no-header -o requirements-airflow.txt
# To renew the jars after a change of the version (in pom.xml, scripts/setup.sh, spark-conf/cluster.conf and
# pyproject.toml): empty jars/, run the mvn command of scripts/setup.sh with -DoutputDirectory=jars, and
#     (cd jars && sha256sum *.jar) > scripts/jars.sha256

SHELL := /bin/bash
VENV := .venv/bin
# Each of the two has a Spark session, for all its tests: one alone leaves a third of two cores idle.
PYTEST_SIDE_BY_SIDE := $(VENV)/python -m pytest -n 2 --dist loadfile
export PYTHON

.PHONY: help setup demo airflow airflow-demo package test test-quick test-slow test-nightly test-engine bench lint types clean

help:
	@echo "make setup       .venv with pinned packages, jars/ with Delta; again: nothing to do"
	@echo "make demo        setup, then a real RocketMQ store becomes tables, with answers in SQL"
	@echo "make airflow     Airflow in an environment of its own (airflow-demo: the DAGs on a sample store, in a browser)"
	@echo "make package     dist/: what the executors of a cluster need, and settings for each kind of cluster"
	@echo "make test        setup, then the test suite (test-quick: under 3 minutes; test-slow: long scenes;"
	@echo "                 test-nightly: longer ones; test-engine: groups and deliveries on the engine users run)"
	@echo "make bench       setup, then the benchmarks"
	@echo "make lint types  ruff, the order of imports, and mypy"
	@echo "make clean       remove what setup and runs have made"

setup:
	@scripts/setup.sh

demo: setup
	@$(VENV)/python scripts/demo.py

airflow: setup
	@scripts/setup_airflow.sh

airflow-demo: airflow
	@.airflow/venv/bin/python scripts/airflow_demo.py $(if $(KEEP),--keep)

package: setup
	@scripts/package.sh

test: setup
	$(PYTEST_SIDE_BY_SIDE) -m "not slow and not nightly" --durations=15

test-quick: setup
	$(VENV)/python -m pytest -m "quick and not slow and not nightly"

test-slow: airflow package
	@scripts/browser.sh
	@scripts/hdfs.sh
	$(PYTEST_SIDE_BY_SIDE) -m "slow and not nightly" --durations=10

# Not in .ci/run: longer than a change can wait for.
test-nightly: airflow package
	@scripts/hdfs.sh
	$(VENV)/python -m pytest -m nightly -v

test-engine: setup
	COMMITLAKE_TEST_ENGINE=users $(VENV)/python -m pytest -m "not nightly" --durations=15 \
		tests/consume tests/delay tests/retry tests/transaction

bench: setup
	@set -e; for benchmark in benchmarks/*.py; do $(VENV)/python $$benchmark; done

lint: setup
	$(VENV)/ruff check .
	$(VENV)/lint-imports --no-cache

types: setup
	$(VENV)/mypy

clean:
	rm -rf .venv .airflow .setup jars build dist *.egg-info spark-warehouse metastore_db derby.log
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
