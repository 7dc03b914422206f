"""What everything else stands on: data classes, errors, numbers, texts, files and processes. Standard library only."""
