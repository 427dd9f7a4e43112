"""Run one program on two packages, the original and the bridge, and say where they part.

`session` opens converters and loaders on either package, `outcome` turns whatever a program
returns or raises into plain data, `comparison` compares two of them and `judge` decides; `stored`
keeps what the original gave, `original` makes it repeatable, `frames` builds the tables.
"""

import importlib.util

# It needs a pyarrow of its time. Without it the stored outcomes stand for it.
HAS_ORIGINAL = importlib.util.find_spec("petastorm") is not None
