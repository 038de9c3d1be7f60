"""`hacpo doctor`: whether this machine, its services and a config are ready, one line each."""
