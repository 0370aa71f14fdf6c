"""Model cards: what a version is, in the form of the Hugging Face Hub's README.md."""
