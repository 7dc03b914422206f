"""Coefficients from measurements. It needs numpy and scipy (the extra ``calibrate``), so only who fits imports it."""
