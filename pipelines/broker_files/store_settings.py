"""Settings of a store that is made from a broker: those of broker.conf, and the sizes of its files."""

from collections.abc import Mapping

from pipelines.broker_files.directory import BrokerDirectory
from pipelines.broker_files.queue_bounds import names_of_kind
from pipelines.broker_files.queue_files import CONSUME_QUEUE, queue_files
from pipelines.broker_files.segments import read_segments
from pipelines.errors import BadInput
from pipelines.rocketmq.settings import OF_AN_IMPORT, Settings


def settings_of(directory: BrokerDirectory, conf: Mapping[str, str]) -> dict[str, str]:
    """Settings for a new store (make_store): those of `conf`, and file sizes where it does not have them.

    Raises BadInput for a setting that is unknown, or a size that is not that of the files.
    """
    settings = dict(conf)
    checked = Settings.of(conf)
    segments, segment_bytes = read_segments(directory, conf)
    if segments and not {"mappedFileSizeCommitLog", "mapedFileSizeCommitLog"} & conf.keys():
        settings["mappedFileSizeCommitLog"] = str(segment_bytes)
    queue_bytes = _queue_file_bytes(directory)
    if queue_bytes is None:
        return settings
    if not {"mappedFileSizeConsumeQueue", "mapedFileSizeConsumeQueue"} & conf.keys():
        settings["mappedFileSizeConsumeQueue"] = str(queue_bytes)
    elif checked.queue_file_bytes != queue_bytes:
        raise BadInput(
            f"the broker's consume queue files have {queue_bytes} bytes, its settings say {checked.queue_file_bytes} "
            "(mappedFileSizeConsumeQueue); a broker would not start. Correct the settings"
        )
    return settings


def recovery_settings(settings: Settings) -> dict[str, str]:
    """Those of a store's settings that say how its broker recovers; for an import that is given no broker.conf."""
    return {name: settings.given[name] for name in OF_AN_IMPORT if name in settings.given}


def _queue_file_bytes(directory: BrokerDirectory) -> int | None:
    """Bytes of the first queue file that is not empty; None without one."""
    for topic, queue_id in names_of_kind(directory, CONSUME_QUEUE):
        for file in queue_files(directory, f"{CONSUME_QUEUE}/{topic}/{queue_id}"):
            if file.size_bytes:
                return file.size_bytes
    return None
