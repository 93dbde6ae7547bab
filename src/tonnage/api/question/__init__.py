"""What people write, understood: names looked up, texts parsed, every error told at once with its
place.
"""
