"""What only a GPU can show. Needs a GPU host; everything else of the project does without."""
