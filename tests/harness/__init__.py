"""What makes the suite fast and safe to run in parallel, and how it is checked."""
