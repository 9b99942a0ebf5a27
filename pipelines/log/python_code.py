"""The user's own Python: functions and classes named MODULE:NAME on the command line."""

import importlib
import sys
from collections.abc import Callable
from typing import Any

from pyspark import cloudpickle

from pipelines.errors import BadInput


def load_function(option: str, name: str, others: str = "") -> Callable[..., Any]:
    """The function `MODULE:NAME`; its module may lie in the current directory, and the workers need not find it.

    option  the option that names it, for the error
    others  words the option takes too: "round_robin, hash, random or "

    Raises BadInput when it cannot be loaded.
    """
    module_name, colon, function_name = name.partition(":")
    if not colon:
        raise BadInput(f"{option} is {name!r}; expected {others}MODULE:NAME")
    sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ImportError as failure:
        raise BadInput(
            f"{option} {name}: there is no module {module_name} to import ({failure})"
        ) from failure
    except Exception as failure:
        raise BadInput(
            f"{option} {name}: module {module_name} cannot be imported ({type(failure).__name__}: {text_of(failure)})"
        ) from failure
    finally:
        sys.path.remove("")
    function = getattr(module, function_name, None)
    if not callable(function):
        raise BadInput(f"{option} {name}: module {module_name} has no function {function_name}")
    # Workers have Python's own modules too, and these cannot be pickled: no job of the session would run any more.
    if module_name.partition(".")[0] not in sys.stdlib_module_names:
        cloudpickle.register_pickle_by_value(module)
    return function


def expect_no_control_c(failure: BaseException) -> None:
    """Raise a Ctrl-C again: of all exceptions of a user's function, SystemExit included, it alone ends the job run."""
    if isinstance(failure, KeyboardInterrupt):
        raise failure


def text_of(value: Any) -> str:
    """The text of a value of the user's: an exception may have none, or one that is not valid UTF-8."""
    try:
        text = str(value)
    except Exception as failure:
        text = f"(its text cannot be made: {type(failure).__name__})"
    return text.encode("utf-8", "backslashreplace").decode()


def load_hook(name: str | None) -> Any:
    """The object MODULE:NAME of --hook, made if it is a class; None without a name. Raises BadInput as `load_function`."""
    if name is None:
        return None
    hook = load_function("--hook", name)
    return hook() if isinstance(hook, type) else hook
