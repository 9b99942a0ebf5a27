"""One Spark session for the suite, stores made from templates, and jobs run as a user would type them."""

import json
import os
import shutil
import tarfile
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs.launch.session import SETTINGS_FILE, read_settings
from pipelines.store.commit import commit
from pipelines.store.plan import Plan
from pipelines.store.store import Store
from schemas import STORE_SETTINGS

PROJECT = Path(__file__).parent.parent
# Of Spark's settings those about how it runs a query.
ENGINE = ("spark.sql.codegen.", "spark.sql.adaptive.")
TEST_SETTINGS_FILE = PROJECT / "spark-conf" / "test.conf"
os.environ["COMMITLAKE_SPARK_CONF"] = str(TEST_SETTINGS_FILE)


# What a platform cannot do. Another test that is skipped in CI lacks what .ci/run should have prepared.
SKIPS_OF_A_PLATFORM = ("the option is Linux's",)


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

    return session("commitlake tests")


@pytest.fixture(scope="module")
def users_engine(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The engine that users run: test.conf switches compiled code and plans that adapt off, for speed.

    What decides where messages lie, and that each goes once, is tested as it runs for users.
    """
    of_users, of_tests = read_settings(SETTINGS_FILE), read_settings(TEST_SETTINGS_FILE)
    switched_off = {name: value for name, value in of_tests.items() if name.startswith(ENGINE)}
    for name in switched_off:
        spark.conf.unset(name)
    of_spark = {name: spark.conf.get(name) for name in switched_off}
    engine = {name: of_users.get(name, of_spark[name]) for name in switched_off}
    assert all(engine[name] != value for name, value in switched_off.items())
    # A job applies its settings to the session it finds: it must find these in its file too.
    file = tmp_path_factory.mktemp("engine") / "users.conf"
    file.write_text("".join(f"{name} {value}\n" for name, value in (of_tests | engine).items()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COMMITLAKE_SPARK_CONF", str(file))
        for name, value in engine.items():
            spark.conf.set(name, value)
        yield
    for name, value in switched_off.items():
        spark.conf.set(name, value)


@pytest.fixture(scope="module")
def engine_of_choice(request: pytest.FixtureRequest) -> None:
    """The engine that users run where COMMITLAKE_TEST_ENGINE=users asks for it (`make test-engine`): compiling the plans
    of these modules' many small jobs takes several times as long as the jobs."""
    if os.environ.get("COMMITLAKE_TEST_ENGINE") == "users":
        request.getfixturevalue("users_engine")


@pytest.fixture(scope="session")
def store_template(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The directory of an empty store with these settings; twenty tables take seconds, so they are made once."""
    made: dict[tuple[tuple[str, str], ...], Path] = {}

    def template(**settings: str) -> Path:
        key = tuple(sorted(settings.items()))
        if key not in made:
            directory = tmp_path_factory.mktemp("template") / "store"
            if key:
                shutil.copytree(template(), directory)
                store = Store(spark, str(directory))
                rows = spark.createDataFrame(list(key), STORE_SETTINGS.columns)
                commit(store, lambda at: Plan((at.replace(STORE_SETTINGS, rows),)))
            else:
                created = run_job(["create_store", "--store", str(directory), "--quiet"])
                assert created.exit_status == 0, created
            made[key] = directory
        return made[key]

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
def golden_broker(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """storePathRootDir of store a or b, unpacked once; read only."""
    unpacked: dict[str, Path] = {}

    def broker(name: str) -> Path:
        if name not in unpacked:
            directory = tmp_path_factory.mktemp(f"broker-{name}")
            with tarfile.open(PROJECT / "tests" / "data" / f"store-{name}.tar.gz") as archive:
                archive.extractall(directory, filter="data")
            unpacked[name] = directory / "store"
        return unpacked[name]

    return broker


@pytest.fixture(scope="session")
def golden_a(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A real broker's messages as a store, followed by its queues and its index; only read."""
    from tests.reports.golden import golden_store

    return golden_store(spark, "a", tmp_path_factory.mktemp("golden") / "a")


@dataclass
class JobRun:
    """What a user sees of a job: exit status, result line, the lines before it, and stderr."""

    exit_status: int
    result: dict[str, Any]
    lines: list[str]
    stderr: str


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
    commitlake: Callable[..., JobRun], new_store: Callable[..., Store], tmp_path: Path
) -> Callable[..., Any]:
    """`life(messageDelayLevel="1s 5s")`: a fresh store with these settings whose clock is set by hand."""
    from tests.life import Life

    return lambda **settings: Life(commitlake, new_store(**settings), tmp_path)


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path
