"""Sessions besides the one a job runs in: settings belong to a session."""

from pyspark.sql import DataFrame, SparkSession

from pipelines.spark_internals.jvm import java_session, jvm

_CODE_OF_PLANS, _CODE_OF_EXPRESSIONS = "spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode"


def cloned(spark: SparkSession) -> SparkSession:
    """A session with the settings, views and functions of another one as they are now; what is set in it stays in it.

    `newSession()`, which is public, begins with the application's settings: those of the caller's session would be lost.
    Read from Spark 4.1.4: the constructor takes Java's session, `cloneSession` is Spark's own.
    """
    return SparkSession(spark.sparkContext, java_session(spark).cloneSession())


def compile_plans(spark: SparkSession) -> None:
    """Have a session that was started for few rows compile its plans from now on: there are many after all."""
    if spark.conf.get(_CODE_OF_PLANS) == "false":
        spark.conf.set(_CODE_OF_PLANS, "true")
        spark.conf.unset(_CODE_OF_EXPRESSIONS)


def make_active(spark: SparkSession) -> None:
    """Have Java's thread of this Python thread know its session: parts of Delta ask for the active one.

    A new thread has none until it runs a query.
    """
    jvm(spark).org.apache.spark.sql.classic.SparkSession.setActiveSession(java_session(spark))


def moved(rows: DataFrame, spark: SparkSession) -> DataFrame:
    """A frame of one session in another session of the same application.

    Read from Spark 4.1.4: `Dataset.ofRows` makes a frame of a plan, in the session that is its argument.
    """
    of_rows = jvm(spark).org.apache.spark.sql.classic.Dataset.ofRows
    return DataFrame(of_rows(java_session(spark), rows._jdf.logicalPlan()), spark)
