"""What travels between podium's server and its clients: operations, errors, and the names of headers."""
