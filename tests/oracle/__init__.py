"""A second, naive implementation of the simulator, and the property tests that hold the engine to it."""
