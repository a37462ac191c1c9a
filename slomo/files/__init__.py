"""Read and write files safely: completely or not at all, with locks that end with their holder."""
