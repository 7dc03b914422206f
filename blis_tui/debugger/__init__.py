"""Time travel through one simulation: positions, checkpoints, breakpoints, explanations. No terminal in here."""
