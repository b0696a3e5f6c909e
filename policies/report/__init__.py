"""Rankings, tables, figures and standings of results."""
