"""Writers of results: record streams, request tables, summaries."""
