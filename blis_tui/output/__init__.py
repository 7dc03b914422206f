"""What results become: text, tables, files, and the formats of other tools."""
