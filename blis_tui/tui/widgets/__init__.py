"""Widgets of several screens: title, tabs, keys and lists."""
