"""Rows of datasets that Petastorm wrote, decoded one by one or put together in n-grams."""
