"""The adapter to search services: request out, connection, answer in, secrets kept."""
