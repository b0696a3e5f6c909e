"""What shows results: rankings, tables, figures and standings."""
