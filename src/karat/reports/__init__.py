"""One plain document, and the forms it is written in."""
