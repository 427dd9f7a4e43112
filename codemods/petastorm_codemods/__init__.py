"""Rewrites Petastorm call sites into native Mosaic streaming calls.

Needs LibCST only: neither Spark, PyTorch, TensorFlow nor Petastorm has to be installed to run it.
"""
