"""Spark itself: sessions, their settings, tasks on executors.

session       the Spark session of `frazil.spark.get_spark`
deployment    the settings for local mode, clusters and Spark Connect
on_spark      the engine `OnSpark`: tasks on executors
errors        what failed in a process of Spark, as errors of Frazil
"""
