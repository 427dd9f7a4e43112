"""Run one program on two packages, the original and the bridge, and say where they part.

`session` opens converters and loaders on either package, `outcome` turns whatever a program
returns or raises into plain data and compares two of them, `original` makes the original
repeatable, `frames` builds the tables, `scenarios` collects the programs.
"""
