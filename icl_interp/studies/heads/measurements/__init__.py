"""What is measured for the claims of `heads`."""
