"""What a recording holds, read back and refused when it cannot be relied on."""
