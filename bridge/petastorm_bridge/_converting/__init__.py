"""Parquet stores and Petastorm's own datasets → MDS, by processes of this machine, without Spark."""
