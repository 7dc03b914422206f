"""What a run stops at and what is watched: breakpoints, conditions, figures, and the words they are made of."""
