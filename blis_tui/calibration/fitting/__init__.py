"""Fits coefficients to measurements; needs numpy and scipy (the extra ``calibrate``), so it is imported on demand."""
