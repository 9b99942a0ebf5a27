"""URIs and paths: without user information, which tables and logs would keep, without glob patterns, on this machine."""

import posixpath
import re
from urllib.parse import urlsplit

from pipelines.errors import BadInput

# Matches the part of an authority before the @. abfss://CONTAINER@ACCOUNT and hdfs://USER@HOST hold no secret.
_USER = re.compile(r"\A([A-Za-z][A-Za-z0-9+.-]*://)[^/@]*@")
S3_SCHEMES = ("s3", "s3a", "s3n")
_KEYS_IN_PLACE_OF_USERS = (*S3_SCHEMES, "gs")
# A name node's port where a URI has none.
HDFS_PORT = 8020
# A scheme has two letters or more: one letter is a drive or a name.
_SCHEME = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]+):)?(.*)", re.DOTALL)


def local_path(uri: str) -> str | None:
    """The directory of a store on this machine's file system; None for any other store.

    The URI is read as Hadoop does, not as the web does: %, # and ? are characters of a name like any other.
    """
    scheme, rest = _SCHEME.fullmatch(uri).groups()  # type: ignore[union-attr]
    if scheme is None:
        return uri
    if scheme.lower() != "file":
        return None
    return re.sub(r"\A//[^/]*", "", rest)


def without_user(uri: str) -> str:
    """The URI as it may be shown: *** replaces a password or a key.

    >>> without_user("s3a://KEY:SECRET@bucket/a"), without_user("abfss://box@account/a"), without_user("a:b@c")
    ('s3a://***@bucket/a', 'abfss://box@account/a', 'a:b@c')
    """
    return _USER.sub(r"\1***@", uri) if _has_secret(uri) else uri


def expect_no_secret(uri: str) -> str:
    """The URI, unchanged. Raises BadInput for one with a password or a key in it."""
    if _has_secret(uri):
        raise BadInput(
            f"{without_user(uri)} has a password or a key before the @, which tables and logs would keep. Leave it out, and "
            "give it to Spark's settings (spark.hadoop.fs.…) or to a credentials provider"
        )
    return uri


def _has_secret(uri: str) -> bool:
    found = _USER.match(uri)
    if found is None:
        return False
    user = found[0][len(found[1]) : -1]
    return ":" in user or urlsplit(uri).scheme.lower() in _KEYS_IN_PLACE_OF_USERS


def one_spelling(uri: str) -> tuple[str, str, str]:
    """The parts of a URI elsewhere than on this machine, the same for its usual spellings.

    >>> one_spelling("s3a://Box/a/./b/") == one_spelling("S3://box/a//b"), one_spelling("hdfs://N:8020/a")[1]
    (True, 'n')
    """
    scheme, _, rest = uri.partition("://")
    authority, _, path = rest.partition("/")
    scheme, authority = scheme.lower(), authority.lower()
    if scheme in S3_SCHEMES:
        scheme = "s3a"
    if scheme == "hdfs":
        authority = authority.removesuffix(f":{HDFS_PORT}")
    return scheme, authority, posixpath.normpath("/" + path.lstrip("/"))


def literal_path(path: str) -> str:
    """The path as Spark reads it where it takes paths for glob patterns.

    >>> print(literal_path("/stores/orders [1]"))
    /stores/orders \\[1\\]
    """
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", path)
