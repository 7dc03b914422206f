"""Specifications: YAML text -> data with source places -> schema check -> resolved, frozen experiment."""
