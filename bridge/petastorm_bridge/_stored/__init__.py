"""What lies beside the files of a dataset that Petastorm wrote: its schema, row groups and indexes."""
