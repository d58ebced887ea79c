"""What demo.py is made of: sources in, things to look at out, and the proof at the end."""
