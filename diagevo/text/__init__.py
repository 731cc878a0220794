"""Text that somebody else wrote, and numbers as people read them."""
