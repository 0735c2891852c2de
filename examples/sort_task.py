"""Learn to sort a string of letters: an Adaptive Universal Transformer of at most 8 steps."""

from toy import main

if __name__ == "__main__":
    main("sort", "Train a Universal Transformer to sort letters.")
