"""Why queries miss: classes with their evidence, and the loss from the ceiling to the value."""
