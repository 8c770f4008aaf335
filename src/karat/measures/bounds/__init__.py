"""What measures could be if somebody judged the items that nobody has judged yet."""
