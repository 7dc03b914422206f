"""Specifications: YAML text -> data with source positions -> schema check -> resolved, frozen experiment."""
