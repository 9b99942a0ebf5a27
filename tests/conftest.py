"""One Spark session for the suite, stores made from templates, and jobs run as a user would type them."""

import fcntl
import hashlib
import json
import os
import shutil
import tarfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from jobs.launch.spark_settings import SETTINGS_FILE, read_settings
from pipelines.broker_files import survey
from pipelines.produce import inputs
from pipelines.store.commit import commit
from pipelines.store.plan import Plan
from pipelines.store.store import Store
from schemas import STORE_SETTINGS

PROJECT = Path(__file__).parent.parent
# Of Spark's settings those about how it runs a query.
ENGINE = ("spark.sql.codegen.", "spark.sql.adaptive.")
TEST_SETTINGS_FILE = PROJECT / "spark-conf" / "test.conf"
os.environ["COMMITLAKE_SPARK_CONF"] = str(TEST_SETTINGS_FILE)

# JVMs that tests start live for seconds, and no test measures their speed: without Java's second compiler they start a
# third sooner. Java's launcher reads it, whoever starts it: spark-submit, a cluster's worker, a task of Airflow.
JAVA_OPTIONS = "JDK_JAVA_OPTIONS"
os.environ[JAVA_OPTIONS] = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"


# What a platform cannot do. Another test that is skipped in CI lacks what .ci/run should have prepared.
SKIPS_OF_A_PLATFORM = ("the option is Linux's",)


# A slow test takes as long as so many others.
SLOW_IS = 15


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What the rest relies on comes first; then long files, so that of two processes none has one left at the end."""
    length = Counter[Path]()
    for item in items:
        length[item.path] += SLOW_IS if item.get_closest_marker("slow") else 1
    items.sort(key=lambda item: (item.path.name != "test_private_apis.py", -length[item.path]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        if not reason.endswith(SKIPS_OF_A_PLATFORM):
            report.outcome, report.longrepr = "failed", f"skipped, which fails in CI: {reason}"
    return report


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    from jobs.launch.session import session

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(JAVA_OPTIONS)  # this JVM lives as long as the suite
        return session("commitlake tests")


@pytest.fixture(scope="module")
def users_engine(spark: SparkSession) -> Iterator[None]:
    """The engine that users run: test.conf switches compiled code and plans that adapt off, for speed.

    What decides where messages lie, and that each goes once, is tested as it runs for users.
    """
    with as_users_run(spark):
        yield


@contextmanager
def as_users_run(spark: SparkSession) -> Iterator[None]:
    of_users, of_tests = read_settings(SETTINGS_FILE), read_settings(TEST_SETTINGS_FILE)
    switched_off = {name: value for name, value in of_tests.items() if name.startswith(ENGINE)}
    before = {name: spark.conf.get(name) for name in switched_off}
    for name in switched_off:
        spark.conf.unset(name)
    of_spark = {name: spark.conf.get(name) for name in switched_off}
    engine = {name: of_users.get(name, of_spark[name]) for name in switched_off}
    assert all(engine[name] != value for name, value in switched_off.items())
    for name, value in engine.items():
        spark.conf.set(name, value)
    yield
    assert {name: spark.conf.get(name) for name in engine} == engine, "jobs leave the session as it is"
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture(scope="module")
def engine_of_choice(request: pytest.FixtureRequest) -> None:
    """The engine that users run where COMMITLAKE_TEST_ENGINE=users asks for it (`make test-engine`): compiling the plans
    of these modules' many small jobs takes several times as long as the jobs."""
    if os.environ.get("COMMITLAKE_TEST_ENGINE") == "users":
        request.getfixturevalue("users_engine")


MadeOnce = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> MadeOnce:
    """`made_once(name, make)`: a directory that `make` has filled, once for all processes of a run; to be read or copied."""
    own = tmp_path_factory.getbasetemp()
    # Processes side by side have a folder each, in one that they share.
    shared = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "made-once"
    shared.mkdir(exist_ok=True)

    def filled(name: str, make: Callable[[Path], object]) -> Path:
        directory, done = shared / name, shared / f"{name}.done"
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(directory, ignore_errors=True)  # of one that failed
                directory.mkdir()
                make(directory)
                done.touch()
        return directory

    return filled


@pytest.fixture(scope="session")
def store_template(spark: SparkSession, made_once: MadeOnce) -> Callable[..., Path]:
    """The directory of an empty store with these settings; twenty tables take seconds, so they are made once."""

    def make(directory: Path, **settings: str) -> None:
        if settings:
            shutil.copytree(template(), directory / "store")
            store = Store(spark, str(directory / "store"))
            rows = spark.createDataFrame(sorted(settings.items()), STORE_SETTINGS.columns)
            commit(store, lambda at: Plan((at.replace(STORE_SETTINGS, rows),)))
        else:
            created = run_job(["create_store", "--store", str(directory / "store"), "--quiet"])
            assert created.exit_status == 0, created

    def template(**settings: str) -> Path:
        digest = hashlib.sha256(repr(sorted(settings.items())).encode()).hexdigest()
        return made_once(f"template-{digest[:16]}", lambda directory: make(directory, **settings)) / "store"

    return template


@pytest.fixture
def new_store(
    spark: SparkSession, store_template: Callable[..., Path], tmp_path: Path
) -> Callable[..., Store]:
    """A fresh store with these settings, as `create_store` makes it."""
    count = 0

    def fresh(**settings: str) -> Store:
        nonlocal count
        count += 1
        directory = tmp_path / f"store{count}"
        shutil.copytree(store_template(**settings), directory)
        return Store(spark, str(directory))

    return fresh


@pytest.fixture
def store(new_store: Callable[..., Store]) -> Store:
    return new_store()


@pytest.fixture(scope="session")
def golden_broker(made_once: MadeOnce) -> Callable[[str], Path]:
    """storePathRootDir of store a or b, unpacked once; read only."""

    def unpack(name: str, directory: Path) -> None:
        with tarfile.open(PROJECT / "tests" / "data" / f"store-{name}.tar.gz") as archive:
            archive.extractall(directory, filter="data")

    return lambda name: made_once(f"broker-{name}", lambda directory: unpack(name, directory)) / "store"


@pytest.fixture(scope="session")
def golden(spark: SparkSession, made_once: MadeOnce) -> "Callable[[str], Store]":
    """A real broker's messages as a store, followed by its queues and its index; only read."""
    from tests.reports.golden import golden_store

    def store(name: str) -> Store:
        made = made_once(f"golden-{name}", lambda directory: golden_store(spark, name, directory / "store"))
        return Store(spark, str(made / "store"))

    return store


@pytest.fixture(scope="session")
def golden_a(golden: Callable[[str], Store]) -> Store:
    return golden("a")


@pytest.fixture(params=["on the driver", pytest.param("on executors", marks=pytest.mark.slow)])
def short_or_long(request: pytest.FixtureRequest) -> Iterator[None]:
    """However short an input or a broker's log is, it is read as where it is short, or as where it is long."""
    if request.param == "on the driver":
        yield
        return
    with (
        patch.object(survey, "BYTES_ON_THE_DRIVER", 0),
        patch.object(inputs, "SHORT_BYTES", 0),
    ):
        yield


@pytest.fixture(scope="session")
def imported_broker(
    spark: SparkSession, golden_broker: Callable[[str], Path], made_once: MadeOnce
) -> "Callable[[str], tuple[Path, JobRun]]":
    """What `import_store` makes of store a or b, with its broker.conf and on the engine users run; only read, or copied."""
    from tests.broker_files.conftest import GOLDEN_CONF

    def make(name: str, directory: Path) -> None:
        conf = directory / "broker.conf"
        conf.write_text(GOLDEN_CONF)
        arguments = ["--store", str(directory / "store"), "--from", str(golden_broker(name))]
        # A short log is read on the driver, a long one on executors: one of the two stores each.
        limit = {"a": survey.BYTES_ON_THE_DRIVER, "b": 0}[name]
        with as_users_run(spark), patch.object(survey, "BYTES_ON_THE_DRIVER", limit):
            run = run_job(["import_store", *arguments, "--broker-conf", str(conf)])
        assert run.exit_status == 0, run.stderr
        run.save(directory / "run.json")

    def imported(name: str) -> tuple[Path, JobRun]:
        made = made_once(f"imported-{name}", lambda directory: make(name, directory))
        return made / "store", JobRun.load(made / "run.json")

    return imported


@pytest.fixture(scope="session")
def dispatched_broker(
    spark: SparkSession, imported_broker: "Callable[[str], tuple[Path, JobRun]]", made_once: MadeOnce
) -> "Callable[[str], Store]":
    """Store a or b, imported and dispatched on the engine users run; only read."""

    def make(name: str, directory: Path) -> None:
        shutil.copytree(imported_broker(name)[0], directory / "store")
        with as_users_run(spark):
            run = run_job(["dispatch", "--store", str(directory / "store")])
        assert run.exit_status == 0, run.stderr

    def dispatched(name: str) -> Store:
        made = made_once(f"dispatched-{name}", lambda directory: make(name, directory))
        return Store(spark, str(made / "store"))

    return dispatched


@dataclass
class JobRun:
    """What a user sees of a job: exit status, result line, the lines before it, and stderr."""

    exit_status: int
    result: dict[str, Any]
    lines: list[str]
    stderr: str

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> "JobRun":
        return cls(**json.loads(path.read_text()))


def run_job(arguments: list[str]) -> JobRun:
    """Run `commitlake …` in this process, in the suite's session."""
    import contextlib
    import io

    from jobs.launch.cli import run

    out, err = io.StringIO(), io.StringIO()
    exit_status = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            run(arguments)
        except SystemExit as leave:
            exit_status = int(leave.code or 0)
    lines = out.getvalue().splitlines()
    result = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
    return JobRun(exit_status, result, lines[:-1], err.getvalue())


@pytest.fixture
def commitlake(spark: SparkSession) -> Callable[..., JobRun]:
    """`commitlake("dispatch", "--store", …)` as a user types it."""
    return lambda *arguments: run_job([str(argument) for argument in arguments])


@pytest.fixture
def life(
    commitlake: Callable[..., JobRun],
    new_store: Callable[..., Store],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Any]:
    """`life(messageDelayLevel="1s 5s")`: a fresh store with these settings whose clock is set by hand."""
    from tests.life import Life

    # The record of each run is a commit of its own, which only warns where it fails, and no part of a life.
    monkeypatch.setattr("jobs.launch.job.record_run", lambda *_: None)

    return lambda **settings: Life(commitlake, new_store(**settings), tmp_path)


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path
