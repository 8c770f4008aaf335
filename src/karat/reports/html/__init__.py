"""The report as a page: a plain document and a view of its queries, rendered by templates."""
