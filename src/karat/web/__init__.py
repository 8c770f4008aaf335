"""The workbench: evaluations of a store as pages and as JSON, served to a browser."""
