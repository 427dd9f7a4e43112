"""Rows of datasets that Petastorm wrote, decoded or put together in n-grams; what it pickles beside them."""
