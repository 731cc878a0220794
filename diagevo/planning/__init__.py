"""What a run will take: memory of cards, hours, disk."""
