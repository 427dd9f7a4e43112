"""Writing a DataFrame in executors: what runs there, and the job on the driver."""
