"""Statistics on columns: arrays in, frozen results out; knows nothing of retrieval."""
