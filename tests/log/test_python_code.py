"""Functions of the user's own, by their names."""

from pathlib import Path

import pytest
from pyspark import cloudpickle

from pipelines.errors import BadInput
from pipelines.log.python_code import load_function

pytestmark = pytest.mark.quick


def test_a_function_of_pythons_own_does_not_stop_the_session() -> None:
    assert load_function("--checker", "builtins:print") is print
    assert load_function("--hook", "os.path:join")("a", "b") == "a/b"
    assert not {"builtins", "os.path"} & set(cloudpickle.list_registry_pickle_by_value())


def test_a_function_of_the_users_travels_to_the_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "code_of_the_user.py").write_text("def double(number):\n    return 2 * number\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    load_function("--checker", "code_of_the_user:double")
    assert "code_of_the_user" in cloudpickle.list_registry_pickle_by_value()


def test_a_module_that_does_not_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would fail the same way in a run of the job again, which is the advice after any other failure."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, source in {"no_python": "def double(", "raises": "1 / 0"}.items():
        (tmp_path / f"code_that_{name}.py").write_text(source)
        with pytest.raises(
            BadInput, match=f"code_that_{name} cannot be imported .(SyntaxError|ZeroDivisionError): "
        ):
            load_function("--listener", f"code_that_{name}:double")


@pytest.mark.parametrize("name", ["double", "no_such_module:f", "os:no_such_function", "os:sep"])
def test_what_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="--checker"):
        load_function("--checker", name)
