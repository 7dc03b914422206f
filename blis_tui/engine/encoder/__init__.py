"""The encoder of images, audio and video: which items of prompts it takes in which step, and its cache."""
