"""A store as a broker's directory, or a part of it as rows."""
