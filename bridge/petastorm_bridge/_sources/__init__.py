"""Where rows come from: MDS datasets and Parquet files, on disks and in object stores."""
