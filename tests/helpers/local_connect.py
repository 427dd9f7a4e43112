"""Spark Connect inside the program that asks for it, beside other programs that do the same.

pyspark starts the server of ``SparkSession.builder.remote("local[2]")`` at port 15002 and connects to that:
two such programs on one machine cannot run at once. What tests run takes a free port instead.
"""

# The beginning of such a program.
FREE_PORT = """
import os, socket
from pyspark.sql.connect.client import DefaultChannelBuilder

with socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    port = listener.getsockname()[1]
DefaultChannelBuilder.default_port = staticmethod(lambda: port)
os.environ["PYSPARK_SUBMIT_ARGS"] = f"--conf spark.connect.grpc.binding.port={port} pyspark-shell"
"""
