"""Run by Airflow's own Python, for test_airflow.py: what is in a folder of DAGs, or what becomes of runs of them.

    python in_airflow.py look FOLDER
    python in_airflow.py run FOLDER '[["ingest", {"input": "…"}], …]'

Answers with one line of JSON on the file descriptor 3; stdout and stderr are Airflow's, with the tasks' logs.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from airflow.dag_processing.dagbag import BundleDagBag


def main(what: str, folder: str, *more: str) -> None:
    dags = BundleDagBag(folder, bundle_path=Path(folder), bundle_name="dags-folder")
    answer = look(dags) if what == "look" else [run(dags, *asked) for asked in json.loads(more[0])]
    with os.fdopen(3, "w") as out:
        json.dump(answer, out)


def look(dags: BundleDagBag) -> dict[str, Any]:
    return {
        "errors": dags.import_errors,
        "spark_is_loaded": "pyspark" in sys.modules,
        "dags": {dag_id: look_at(dag) for dag_id, dag in dags.dags.items()},
    }


def look_at(dag: Any) -> dict[str, Any]:
    return {
        "schedule": getattr(dag.timetable, "expression", None) or dag.timetable.__class__.__name__,
        "assets": sorted(asset.name for asset in assets_of(dag)),
        "max_active_runs": dag.max_active_runs,
        "catchup": dag.catchup,
        "params": sorted(dag.params),
        "doc": dag.doc_md,
        "tasks": {
            task.task_id: {
                "type": task.task_type,
                "pool": task.pool,
                "retries": task.retries,
                "trigger_rule": task.trigger_rule.value,
                "outlets": sorted(outlet.name for outlet in task.outlets),
                "after": sorted(task.upstream_task_ids),
            }
            for task in dag.tasks
        },
    }


def assets_of(dag: Any) -> list[Any]:
    condition = getattr(dag.timetable, "asset_condition", None)
    return list(condition.objects) if condition else []


def run(dags: BundleDagBag, dag_id: str, params: dict[str, str]) -> dict[str, Any]:
    """One run, in this process, by a real spark-submit."""
    from airflow.models.asset import AssetEvent
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    ran = dags.dags[dag_id].test(run_conf=params)
    with create_session() as session:
        of_run = (XComModel.dag_id == dag_id, XComModel.run_id == ran.run_id, XComModel.key == "return_value")
        results = session.scalars(select(XComModel).where(*of_run)).all()
        events = session.scalars(select(AssetEvent).where(AssetEvent.source_run_id == ran.run_id)).all()
        return {
            "state": str(ran.state),
            "tasks": {task.task_id: str(task.state) for task in ran.get_task_instances(session=session)},
            "tries": max(task.try_number for task in ran.get_task_instances(session=session)),
            "results": {result.task_id: XComModel.deserialize_value(result) for result in results},
            "told": [[event.asset.name, event.extra] for event in events],
        }


if __name__ == "__main__":
    main(*sys.argv[1:])
