"""Documents of BLIS, the simulator in Go, and of Hugging Face, as documents of this package."""
