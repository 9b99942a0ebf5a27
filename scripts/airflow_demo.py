"""`make airflow-demo`: Airflow on this machine, with the DAGs at work on a real broker's store.

It runs in Airflow's own Python, starts Airflow's three parts, ingests a broker's directory, waits for the DAG runs that
follow from that, and shows their results. On a terminal, or with --keep, Airflow stays up until Ctrl-C.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

PROJECT = Path(__file__).resolve().parent.parent
AIRFLOW = str(PROJECT / "scripts" / "airflow.sh")
HOME = Path(os.environ.get("AIRFLOW_HOME") or PROJECT / ".airflow")
DEMO = PROJECT / "demo" / "airflow"
STORE = "demo/airflow/store"
DAGS = ("ingest", "dispatch", "deliver", "transactions", "consume", "maintain", "quality")
# A cold start of Airflow on a small machine, and a Spark job after it.
PATIENCE_SECONDS = 300
ENDED = ("success", "failed")


def main() -> None:
    options = argparse.ArgumentParser(description="Airflow with the DAGs at work on a sample store.")
    options.add_argument("--keep", action="store_true", help="stay up until Ctrl-C, also without a terminal")
    options.add_argument(
        "--port", type=int, default=8080, help="the page's port; another is taken when it is in use"
    )
    given = options.parse_args()
    # Ctrl-C and a plain kill both end in the same way, so that no process of Airflow is left.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    lay_out_the_broker()
    try:
        with airflow(free_port(given.port)) as api:
            is_well = tour(api)
            if given.keep or sys.stdout.isatty():
                say(f"\nAirflow stays up at {api.base_url}; Ctrl-C stops it.")
                signal.pause()
    except KeyboardInterrupt:
        return
    sys.exit(0 if is_well else 1)


def lay_out_the_broker() -> None:
    shutil.rmtree(DEMO, ignore_errors=True)
    DEMO.mkdir(parents=True)
    with tarfile.open(PROJECT / "tests" / "data" / "store-a.tar.gz") as broker:
        broker.extractall(DEMO / "broker", filter="data")


def tour(api: httpx.Client) -> bool:
    """Trigger the DAGs and show their results; returns whether all runs succeeded."""
    seen = Seen(api)
    say("\n# A broker's directory goes in; dispatch follows by itself, because the log has grown.")
    seen.trigger("ingest", {"import_from": "demo/airflow/broker/store"})
    seen.next_run("dispatch")
    say("\n# Messages of one's own, and dispatch again.")
    seen.trigger("ingest", {"input": "tests/data/messages.jsonl"})
    seen.next_run("dispatch")
    say(
        "\n# deliver runs every minute: this is its next run. It brings back what is due, and dispatch follows."
    )
    unpause(api, "deliver")
    seen.next_run("deliver")
    pause(api, "deliver")
    seen.next_run("dispatch")
    say("\n# Every promise is checked, and the report page made.")
    seen.trigger("quality", {"out": "demo/airflow/report.html"})
    say(f"\nThe store is in {STORE}, the page in demo/airflow/report.html.")
    return all(state == "success" for state in seen.runs.values())


@contextmanager
def airflow(port: int) -> Iterator[httpx.Client]:
    """Airflow's three parts, up and answering on this machine only; stopped at the end."""
    url = f"http://127.0.0.1:{port}"
    env = {
        **os.environ,
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW_VAR_COMMITLAKE": json.dumps({"store": STORE}),
    }
    say("making Airflow's database")
    HOME.mkdir(parents=True, exist_ok=True)
    log = HOME / "demo.log"
    with log.open("w") as output:

        def command(*words: str) -> list[str]:
            return [AIRFLOW, *words]

        for words in (("db", "migrate"), ("pools", "import", "dags/pools.json")):
            if subprocess.run(command(*words), env=env, cwd=PROJECT, stdout=output, stderr=output).returncode:
                sys.exit(f"error: airflow {' '.join(words)} failed; see {log}")
        say("starting Airflow")
        # Each in a process group of its own: a Ctrl-C goes to this program, which then stops them.
        parts = [
            subprocess.Popen(
                command(*words), env=env, cwd=PROJECT, stdout=output, stderr=output, start_new_session=True
            )
            for words in (
                ("api-server", "--port", str(port)),
                ("scheduler", "--skip-serve-logs"),
                ("dag-processor",),
            )
        ]
        try:
            yield signed_in(url, parts, log)
        finally:
            say("stopping Airflow")
            stop(parts)


def signed_in(url: str, parts: list[subprocess.Popen[bytes]], log: Path) -> httpx.Client:
    """A client of the API once Airflow is up and has read the DAGs."""
    api = httpx.Client(base_url=url, timeout=30)

    def is_up() -> bool:
        dead = [part.args for part in parts if part.poll() is not None]
        if dead:
            sys.exit(f"error: Airflow did not start, its log says why: {log}")
        try:
            health = api.get("/api/v2/monitor/health").json()
        except (httpx.HTTPError, ValueError):
            return False
        return all(health[part]["status"] == "healthy" for part in ("scheduler", "dag_processor"))

    wait("Airflow", is_up)
    password = json.loads((HOME / "simple_auth_manager_passwords.json.generated").read_text())["admin"]
    token = api.post("/auth/token", json={"username": "admin", "password": password}).json()["access_token"]
    api.headers["Authorization"] = f"Bearer {token}"
    wait("the DAGs", lambda: all(api.get(f"/api/v2/dags/{dag}").is_success for dag in DAGS))
    for dag in DAGS:
        pause(api, dag)
    for dag in ("ingest", "dispatch", "quality"):
        unpause(api, dag)
    say(f"Airflow is up: {url}, user admin, password {password}")
    return api


def stop(parts: list[subprocess.Popen[bytes]]) -> None:
    for part in parts:
        if part.poll() is None:
            os.killpg(part.pid, signal.SIGTERM)
    for part in parts:
        try:
            part.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(part.pid, signal.SIGKILL)


def pause(api: httpx.Client, dag: str, is_paused: bool = True) -> None:
    api.patch(f"/api/v2/dags/{dag}", json={"is_paused": is_paused}).raise_for_status()


def unpause(api: httpx.Client, dag: str) -> None:
    pause(api, dag, is_paused=False)


class Seen:
    """The DAG runs seen so far, and the final state of each that was waited for."""

    def __init__(self, api: httpx.Client) -> None:
        self.api = api
        self.earlier = {(dag, run) for dag in DAGS for run in self._runs(dag)}
        self.runs: dict[tuple[str, str], str] = {}

    def trigger(self, dag: str, params: dict[str, str]) -> None:
        """Start a run, wait for its end, and show it."""
        say(f"$ scripts/airflow.sh dags trigger {dag} --conf '{json.dumps(params)}'")
        asked = self.api.post(f"/api/v2/dags/{dag}/dagRuns", json={"logical_date": None, "conf": params})
        self._show(dag, asked.raise_for_status().json()["dag_run_id"])

    def next_run(self, dag: str) -> None:
        """Wait for the first run not seen yet, and show it."""

        def new() -> list[str]:
            known = self.earlier | self.runs.keys()
            return [run for run in self._runs(dag) if (dag, run) not in known]

        self._show(dag, wait(f"a run of {dag}", new)[0])

    def _runs(self, dag: str) -> list[str]:
        newest = {"order_by": "-run_after", "limit": 100}
        found = self.api.get(f"/api/v2/dags/{dag}/dagRuns", params=newest).raise_for_status().json()
        return [run["dag_run_id"] for run in reversed(found["dag_runs"])]

    def _show(self, dag: str, run_id: str) -> None:
        path = f"/api/v2/dags/{dag}/dagRuns/{run_id}"

        def state() -> str | None:
            now = self.api.get(path).raise_for_status().json()["state"]
            return now if now in ENDED else None

        self.runs[dag, run_id] = wait(f"the end of {dag} {run_id}", state)
        say(f"{dag}: {self.runs[dag, run_id]}")
        for task in self.api.get(f"{path}/taskInstances").json()["task_instances"]:
            if task["state"] != "skipped":
                say(f"  {task['task_id']}: {task['state']} {self._result(path, task)}")

    def _result(self, path: str, task: dict[str, Any]) -> str:
        where = f"{path}/taskInstances/{task['task_id']}/xcomEntries/return_value"
        answer = self.api.get(where, params={"map_index": task["map_index"]})
        return str(answer.json()["value"]) if answer.is_success else ""


def wait(what: str, look: Callable[[], Any]) -> Any:
    """What `look` finds, once it finds something."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := look()):
        if time.monotonic() > deadline:
            sys.exit(
                f"error: {what} did not come within {PATIENCE_SECONDS} s; see {HOME}/demo.log and {HOME}/logs"
            )
        time.sleep(1)
    return found


def free_port(wanted: int) -> int:
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    sys.exit("error: no port of 127.0.0.1 is free")


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
