"""Work in other threads and processes, none of which keeps a program from ending."""
