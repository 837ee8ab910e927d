"""What several notebooks draw with."""
