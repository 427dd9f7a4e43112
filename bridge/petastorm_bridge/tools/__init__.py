"""Command line tools for datasets in Petastorm's own format (``petastorm/tools``)."""

__all__: list[str] = []
