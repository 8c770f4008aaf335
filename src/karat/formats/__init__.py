"""Files in and out: one module a format, each with read_x and write_x."""
