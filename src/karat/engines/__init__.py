"""Other ways to compute the same numbers: for what outgrows one machine."""
