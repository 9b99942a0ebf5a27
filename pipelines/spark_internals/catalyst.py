"""Functions of the JVM that Spark's own plans can call but Python's API does not offer. Rows never leave the JVM.

Read from Spark 4.1.4: the order of the arguments of Catalyst's Invoke, StaticInvoke, Literal and HiveHash;
`ExpressionUtils`, which turns columns into expressions and back; UTF8String and UnsafeArrayData, in which a task holds
values. Another Spark may differ; every function here has a test that would then fail.
"""

import re
from collections.abc import Sequence
from decimal import Decimal
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from pyspark import SparkContext
from pyspark.sql import Column
from pyspark.sql import functions as F


class Call(NamedTuple):
    """What Catalyst's Invoke and StaticInvoke assume of a method; the fields have Catalyst's names.

    propagate_null    the result is null where an argument is null, and the method is not called
    return_nullable   the method may return null
    is_deterministic  it returns the same for the same arguments: Spark may call it once, and anywhere in the plan
    """

    propagate_null: bool
    return_nullable: bool
    is_deterministic: bool


IS_A_FUNCTION = Call(propagate_null=True, return_nullable=True, is_deterministic=True)
# The method is called for each row, in the task that has the row, and not while the plan is made.
IS_CALLED_FOR_EACH_ROW = Call(propagate_null=True, return_nullable=False, is_deterministic=False)


def hive_hash(text: Column) -> Column:
    """The hash of Hive's buckets, int: h = 31 * h + byte over the bytes of a string; 0 for null."""
    jvm = _jvm()
    return jvm.column(jvm.hive_hash(jvm.arguments(jvm.expression(text))))


def string_hash(text: Column) -> Column:
    """String.hashCode of a text, int; null for null."""
    jvm = _jvm()
    return jvm.column(jvm.method(jvm.java_text(text), "hashCode", jvm.integer))


def is_ascii(text: Column) -> Column:
    """Whether a text has no character beyond ASCII; null for null. To compare its lengths, as SQL does, takes longer."""
    jvm = _jvm()
    return jvm.column(jvm.method(jvm.expression(text), "isFullAscii", jvm.boolean))


def runtime_literal(number: int) -> Column:
    """A literal, long, whose number is not part of the code Spark generates.

    Use it for a number that differs in each query. F.lit writes numbers of up to 64 bits into the code, and a query
    over millions of rows is then compiled again each time, by Spark and, while its first rows wait, by the JVM.
    """
    jvm = _jvm()
    as_decimal = jvm.expression(F.lit(Decimal(number)))  # an object, passed to the code
    return jvm.column(jvm.method(as_decimal, "toLong", jvm.long, IS_CALLED_FOR_EACH_ROW))


def number_of(texts: Sequence[str], text: Column) -> Column:
    """The index (long) of a text in `texts`, which all differ and have no U+0001; -1 where it is not there, or null."""
    if not texts:
        return F.lit(-1).cast("long")
    jvm = _jvm()
    known = jvm.held(jvm.numbered(texts))
    found = jvm.method(known, "get", jvm.long, IS_A_FUNCTION, jvm.arguments(jvm.expression(text)))
    return F.coalesce(jvm.column(found), F.lit(-1))


def search(ascending: np.ndarray, number: Column) -> Column:
    """The index (int) of a number (long) in an ascending array (int64); null for null.

    Where the number is not there, it is -1 minus the count of smaller ones, as Arrays.binarySearch returns it.
    """
    jvm = _jvm()
    among = jvm.literal(jvm.long_array(ascending), jvm.longs)
    return jvm.column(jvm.call(jvm.arrays, "binarySearch", jvm.integer, among, jvm.expression(number)))


def number_at(numbers: np.ndarray, index: Column) -> Column:
    """The number (long) at an index of an array (int64); null where the index is outside.

    The numbers are not part of the code Spark generates.
    """
    jvm = _jvm()
    array = jvm.unsafe_array.fromPrimitiveArray(jvm.long_array(numbers))
    return F.get(jvm.column(jvm.literal(array, jvm.array_of_longs)), index)


def running_counter(starts: np.ndarray, ends: np.ndarray, which: Column, step: Column) -> Column:
    """A running counter: the value (long) of a counter before `step` (long) is added to it.

    starts, ends  where each counter starts, and what it must not exceed, int64: a row that takes it further fails its
                  task, and so does an index without a counter (see `off_counter`)
    which         index of the counter, int; null: the result is null and nothing is added
    Each task has its own counters and counts its rows in their order. A task that is tried again starts from `starts`,
    because Spark sends every task a new copy of its plan.
    """
    jvm = _jvm()
    counters = jvm.held(jvm.counters(jvm.long_array(starts)))
    arguments = jvm.arguments(jvm.expression(which), jvm.expression(step))
    stood_at = jvm.method(counters, "getAndAdd", jvm.long, IS_CALLED_FOR_EACH_ROW, arguments)
    # The JVM has an instruction for this method, which returns its first argument.
    end = jvm.expression(F.coalesce(number_at(ends, which), F.lit(0).cast("long")))
    return jvm.column(
        jvm.call(jvm.objects, "checkFromIndexSize", jvm.long, stood_at, jvm.expression(step), end)
    )


# The JVM's message for an index without a counter, and for a counter that would go beyond its end.
_OFF_COUNTER = re.compile(r"(?:Index -?\d+|Range \[\d+, \d+ \+ \d+\)) out of bounds for length \d+")


def off_counter(failure: BaseException) -> str | None:
    """The JVM's message where a failure comes from a counter of `running_counter`; None for another failure."""
    found = _OFF_COUNTER.search(str(failure))
    return found[0] if found is not None else None


def occurrences(text: Column, part: str) -> Column:
    """How often a part occurs in a text without overlapping, int; null for null."""
    jvm = _jvm()
    found = jvm.call(
        jvm.string_utils, "countMatches", jvm.integer, jvm.java_text(text), jvm.java_literal(part)
    )
    return jvm.column(found)


def parts_between(text: Column, opens: str, closes: str) -> Column:
    """How many parts of a text lie between an `opens` and the next `closes` after it, int; null where there are none."""
    jvm = _jvm()
    marks = map(jvm.java_literal, (opens, closes))
    pieces = jvm.call(jvm.string_utils, "substringsBetween", jvm.java_strings, jvm.java_text(text), *marks)
    return jvm.column(jvm.call(jvm.java_array, "getLength", jvm.integer, pieces))


def after_last(text: Column, begins: str, ends: str) -> Column:
    """The text after the last `begins`, up to the next `ends`, string; null where that is empty.

    It equals substring_index(substring_index(text, begins, -1), ends, 1) where the text begins with `ends`, in a third of
    the time: Spark compares all of `begins` at every byte, commons-lang (one of Spark's jars) only the first.
    """
    jvm = _jvm()
    first, last = map(jvm.java_literal, (begins, ends))
    rest = jvm.call(jvm.string_utils, "substringAfterLast", jvm.java_string, jvm.java_text(text), first)
    found = jvm.call(jvm.string_utils, "substringBefore", jvm.java_string, rest, last)
    something = jvm.call(jvm.strings, "emptyToNull", jvm.java_string, found)
    return jvm.column(jvm.call(jvm.utf8_string, "fromString", jvm.spark_string, something))


def _jvm() -> "_Jvm":
    context = SparkContext._active_spark_context
    assert context is not None, "columns are made inside a Spark session"
    return _known(context._jvm)


class _Jvm:
    """The Java classes and functions these expressions are made of, looked up once in a session."""

    def __init__(self, jvm: Any) -> None:
        spark = jvm.org.apache.spark
        types, expressions = spark.sql.types, spark.sql.catalyst.expressions
        self._columns = spark.sql.classic.ExpressionUtils
        self._list_of, self._to_seq = jvm.java.util.List.of, jvm.PythonUtils.toSeq
        self._static_invoke, self._no_scalar = expressions.objects.StaticInvoke, jvm.scala.Option.empty()
        self._invoke, self.literal = expressions.objects.Invoke, expressions.Literal
        self.hive_hash = expressions.HiveHash
        self.nothing = self.arguments()

        def class_of(name: str) -> Any:
            return spark.util.Utils.classForName(name, True, False)

        self.string_utils = class_of("org.apache.commons.lang3.StringUtils")
        self.strings = class_of("com.google.common.base.Strings")
        self.utf8_string = class_of("org.apache.spark.unsafe.types.UTF8String")
        self.java_array = class_of("java.lang.reflect.Array")
        self.arrays = class_of("java.util.Arrays")
        self.objects = class_of("java.util.Objects")
        self._object_type, self._list = types.ObjectType, types.ObjectType(class_of("java.util.List"))

        gateway = SparkContext._gateway
        assert gateway is not None, "a Spark session has one"
        self._new_long_array = partial(gateway.new_array, jvm.long)
        self._new_array = jvm.java.lang.reflect.Array.newInstance
        self.counters = jvm.java.util.concurrent.atomic.AtomicLongArray
        self._hash_map, self._map_of = (
            jvm.java.util.HashMap,
            spark.sql.catalyst.util.ArrayBasedMapData.toJavaMap,
        )
        self._spark_array, self.unsafe_array = (
            spark.sql.catalyst.util.GenericArrayData,
            expressions.UnsafeArrayData,
        )
        self._memory, self._text_of = spark.unsafe.Platform, spark.unsafe.types.UTF8String.fromString

        self.java_string = types.ObjectType(class_of("java.lang.String"))
        self.java_strings = types.ObjectType(class_of("[Ljava.lang.String;"))
        self.longs = types.ObjectType(class_of("[J"))
        self.long = types.DataType.fromJson('"long"')
        self.array_of_longs = types.ArrayType(self.long, False)
        self.boolean = types.DataType.fromJson('"boolean"')
        self.integer = types.DataType.fromJson('"integer"')
        self.spark_string = types.DataType.fromJson('"string"')

    def expression(self, column: Column) -> Any:
        return self._columns.expression(column._jc)

    def column(self, expression: Any) -> Column:
        return Column(self._columns.column(expression))

    def method(
        self,
        owner: Any,
        name: str,
        returns: Any,
        call: Call = IS_A_FUNCTION,
        arguments: Any = None,
    ) -> Any:
        """A call of an object's method."""
        given = self.nothing if arguments is None else arguments
        return self._invoke(owner, name, returns, given, self.nothing, *call)

    def held(self, thing: Any) -> Any:
        """An object as an expression; every task gets a new copy of it.

        It is wrapped in an array, because a plan's text holds a literal in full, but of an array only the address.
        """
        kind, array = thing.getClass(), self._new_array(thing.getClass(), 1)
        array[0] = thing
        literal = self.literal(array, self._object_type(array.getClass()))
        first = self.arguments(self.literal(0, self.integer))
        listed = self.call(self.arrays, "asList", self._list, literal)
        return self.method(listed, "get", self._object_type(kind), IS_A_FUNCTION, first)

    def long_array(self, numbers: np.ndarray) -> Any:
        """A Java long[] with these numbers, copied at once."""
        memory = np.ascontiguousarray(numbers, "<i8")
        array = self._new_long_array(len(memory))
        platform = self._memory
        platform.copyMemory(
            memory.tobytes(), platform.BYTE_ARRAY_OFFSET, array, platform.LONG_ARRAY_OFFSET, memory.nbytes
        )
        return array

    def numbered(self, texts: Sequence[str]) -> Any:
        """A Java map from UTF8String to index, made without a py4j call for each text."""
        split = self._text_of("\x01".join(texts)).split(self._text_of("\x01"), -1)
        objects = self._spark_array(split).toObjectArray(self.spark_string)
        numbers = self._spark_array(self.long_array(np.arange(len(objects)))).array()
        return self._hash_map(self._map_of(objects, numbers))

    def java_text(self, text: Column) -> Any:
        return self.method(self.expression(text), "toString", self.java_string)

    def java_literal(self, text: str) -> Any:
        return self.literal(text, self.java_string)

    def arguments(self, *expressions: Any) -> Any:
        return self._to_seq(self._list_of(*expressions))

    def call(self, owner: Any, method: str, returns: Any, *arguments: Any) -> Any:
        """A call of a class's static method."""
        given = self.arguments(*arguments)
        return self._static_invoke(
            owner, returns, method, given, self.nothing, *IS_A_FUNCTION, self._no_scalar
        )


_known = cache(_Jvm)
