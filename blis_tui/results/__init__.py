"""What a run gives: the log of its requests, the report, warnings, expectations and conditions."""
