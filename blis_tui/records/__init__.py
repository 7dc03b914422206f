"""Writers of what happened: record streams, request tables, summaries."""
