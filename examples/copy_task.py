"""Learn to copy a string of letters: a Transformer of one layer and one head, width 128."""

from toy import main

if __name__ == "__main__":
    main("copy", "Train a Transformer of one layer and one head to copy letters.")
