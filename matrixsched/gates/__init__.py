"""What holds work back until it may go."""
