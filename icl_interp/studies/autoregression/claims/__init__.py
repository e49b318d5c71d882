"""What is claimed: criterion and evidence, a file for each group that shares an argument."""
