"""Side-by-side measurements of the bridge, Petastorm and native MosaicML Streaming.

``python -m benchmarks.run`` builds its own data, races the loaders and prints the tables.
"""
