"""The files around the programs: which there are, what they install, where the support module goes."""
