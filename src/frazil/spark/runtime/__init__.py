"""Spark itself: sessions, their settings, tasks on executors.

session       the Spark session of `frazil.spark.get_spark`
settings      the settings of sessions
jvm           the JVM of a session that is not of Spark Connect
on_spark      the engine `OnSpark`: tasks on executors
errors        what failed in a process of Spark, as errors of Frazil
"""
