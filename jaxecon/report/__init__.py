"""Tables, pictures and launch commands. No cost arithmetic of its own."""
