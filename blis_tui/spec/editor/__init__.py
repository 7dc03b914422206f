"""What an editor asks about a document while it is being written."""
