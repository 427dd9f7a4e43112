"""What the TensorFlow datasets share: columns as tensors, and who gets which rows."""
