"""Spark itself: sessions, their settings, tasks on executors.

session       the Spark session of `frazil.spark.get_spark`, and the settings of sessions
on_spark      the engine `OnSpark`: tasks on executors
errors        what failed in a process of Spark, as errors of Frazil
"""
