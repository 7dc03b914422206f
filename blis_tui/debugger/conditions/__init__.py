"""What a run stops at and what is watched: breakpoints, predicates, and the words they are made of."""
