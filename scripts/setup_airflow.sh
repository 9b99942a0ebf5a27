#!/usr/bin/env bash
# Make .airflow/venv what requirements-airflow.txt says. Run by `make airflow`, after `make setup`.
#
# An environment of its own: the Spark provider brings pyspark-client, which writes over pyspark's own folder. Spark is not
# run from here; the DAGs call .venv/bin/spark-submit. Safe to run again and to kill, as setup.sh is.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

main_airflow() {
    mkdir -p .setup .airflow
    wait_for_other_setup
    find_python
    install_airflow
    [ "${did_something:-no}" = yes ] && say "Airflow is set up; try: make airflow-demo" || say "nothing to do for Airflow"
}

install_airflow() {
    local wanted
    wanted=$(digest requirements-airflow.txt requirements-setup.txt)
    is_done airflow "$wanted" && [ -x .airflow/venv/bin/airflow ] && return
    rm -f .setup/airflow
    make_environment .airflow/venv
    say "installing the pinned packages of requirements-airflow.txt (two thirds of a gigabyte, a minute or two)"
    install_pinned .airflow/venv requirements-airflow.txt
    done_with airflow "$wanted"
}

main_airflow
