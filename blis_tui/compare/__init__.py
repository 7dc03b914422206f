"""What differs between two experiments, their reports and their record streams: the one place that finds it."""
