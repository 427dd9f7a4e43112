"""What the torch loaders share: columns as tensors, batches, positions to resume from."""
