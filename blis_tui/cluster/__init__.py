"""The cluster around the instances: admission, routing, the event loop, snapshots."""
