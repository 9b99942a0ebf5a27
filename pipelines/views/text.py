"""Values as text for other programs."""

from pyspark.sql import Column
from pyspark.sql import functions as F


def base64_text(binary: Column) -> Column:
    """Bytes as base64 in one line, as JSON has them: Spark's own function begins another line every 76 characters."""
    return F.translate(F.base64(binary), "\r\n", "")
