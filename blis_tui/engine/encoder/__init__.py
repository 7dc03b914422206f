"""The encoder of images, audio and video: which media items it encodes in which step, and its cache."""
