"""Queries, Gold, Run and Corpus: frozen tables, validated once when they are made."""
