"""The control plane's built-in policies, by plug point."""
