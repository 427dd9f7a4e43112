"""Options of command lines that start Spark (``petastorm/tools/spark_session_cli.py``)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

__all__ = ["add_configure_spark_arguments", "configure_spark"]


def configure_spark(spark_session_builder: Any, args: argparse.Namespace) -> Any:
    """Return a session builder with what the command line says.

    Args:
        spark_session_builder: ``SparkSession.builder``.
        args: What a parser gave that went through :func:`add_configure_spark_arguments`.

    Raises:
        RuntimeError: It did not.
        ValueError: A setting is not of the form ``key=value``.
    """
    if "spark_session_config" not in args or "master" not in args:
        raise RuntimeError(
            "--spark-session-config and/or --master were not found in parsed arguments. "
            "Call add_configure_spark_arguments() to add them."
        )
    for key, value in _settings(args.spark_session_config).items():
        spark_session_builder.config(key, value)
    if args.master:
        spark_session_builder.master(args.master)
    return spark_session_builder


def add_configure_spark_arguments(argparser: argparse.ArgumentParser) -> None:
    """Add the options ``--master`` and ``--spark-session-config`` to a parser."""
    argparser.add_argument("--master", help="Spark master, such as local[4]")
    argparser.add_argument(
        "--spark-session-config",
        nargs="+",
        help="settings of the session as key=value, such as spark.executor.cores=2",
    )


def _settings(pairs: Sequence[str] | None) -> dict[str, str]:
    settings = {}
    for pair in pairs or ():
        parts = pair.split("=")
        if len(parts) != 2:
            raise ValueError(
                f"Elements of spark_session_config list are expected to be in key=value format. Got: {pair}"
            )
        settings[parts[0]] = parts[1]
    return settings
