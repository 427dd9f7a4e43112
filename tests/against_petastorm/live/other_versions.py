"""Scenarios in which newer engines give something else, whichever package asks them.

What is stored was given beside the engines of the original's time. Where the original cannot be
installed, these scenarios cannot be judged by it; each must still differ there, or its entry goes.
"""

_TIMESTAMP = "names the class of a timestamp, which pandas 3 shows as a part of another module"
_PLANS = "two frames made of one pandas table have the same plan in Spark 4"

NOT_JUDGED = {
    "func input dtypes, no nulls": _TIMESTAMP,
    "func input dtypes, nulls in row 2": _TIMESTAMP,
    "reuse: createDataFrame(pandas) twice": _PLANS,
}
