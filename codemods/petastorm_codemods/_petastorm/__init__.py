"""Petastorm's names, and their counterparts."""
