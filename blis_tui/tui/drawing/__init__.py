"""What panes and screens draw: lines of text, strips, plots and bars."""
