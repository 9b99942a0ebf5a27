#!/usr/bin/env bash
# Airflow's own command, set up for this project: scripts/airflow.sh dags list
#
# Everything it keeps is in .airflow/: the database, logs, the password. What is set outside wins.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[ -x .airflow/venv/bin/airflow ] || {
    echo "error: Airflow is not set up here; run: make airflow" >&2
    exit 1
}

export AIRFLOW_HOME=${AIRFLOW_HOME:-$PWD/.airflow}
# These DAGs, and none of Airflow's examples.
export AIRFLOW__CORE__DAGS_FOLDER=$PWD/dags
export AIRFLOW__CORE__LOAD_EXAMPLES=False
# Who gives the machines: this one. As JSON, because the URI spark://local[*] silently becomes yarn.
export AIRFLOW_CONN_SPARK_DEFAULT=${AIRFLOW_CONN_SPARK_DEFAULT:-'{"conn_type": "spark", "host": "local[*]"}'}
# Nobody but this machine.
export AIRFLOW__API__HOST=${AIRFLOW__API__HOST:-127.0.0.1}
# A few tasks at once: each is a Spark driver.
export AIRFLOW__CORE__PARALLELISM=${AIRFLOW__CORE__PARALLELISM:-4}
# A new or changed DAG is seen within seconds.
export AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL=${AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL:-15}
# Airflow starts itself by name.
export PATH=$PWD/.airflow/venv/bin:$PATH

exec .airflow/venv/bin/airflow "$@"
