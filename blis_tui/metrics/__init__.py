"""What is measured: request log, distributions, report, expectations."""
